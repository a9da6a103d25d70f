"""A batch write with a task that hangs halfway, once: `python -m tests.support.spark_straggler REQUEST`, a JSON object.

Whoever runs it lets Spark speculate, or kills the executor; the rows must be there once. The task says where it runs in a file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from goqueue.pipeline.session.session import SessionOptions, start_session

DONE = "all is written"
ROW_COUNT = 4_000
TASKS = 4
_HANG_S = 240.0


class StragglerRequest(msgspec.Struct, frozen=True):
    kafka: str
    topic: str
    place: str  # a file, which the task that hangs makes
    master: str
    settings: dict[str, str]


def main() -> None:
    request = msgspec.json.decode(sys.argv[1], type=StragglerRequest)
    spark = start_session(SessionOptions("straggler", request.master, None, request.settings, is_short=True))
    place = request.place

    def hang_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and _is_first(place):
                time.sleep(_HANG_S)

    def _is_first(path: str) -> bool:
        try:
            with Path(path).open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True

    frame = spark.range(0, ROW_COUNT, 1, TASKS).selectExpr("cast(cast(id as string) as binary) value")
    rows = frame.mapInArrow(hang_once, "value binary")
    writer = rows.write.format("goqueue").mode("append").option("bootstrap.servers", request.kafka)
    writer.option("topic", request.topic).option("batch.size", 1_024).save()
    print(DONE, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
