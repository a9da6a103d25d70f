"""Consume, transform, produce through Spark, as a process of its own: `python -m tests.support.spark_driver KAFKA CHECKPOINT
OFFSETS_MAX`.

Whatever is in topic `in` is written to `out`, changed. It runs until it is killed, or is told to end by a line on its
input, and survives by its checkpoint alone.
"""

from __future__ import annotations

import sys
import threading

from pyspark.sql.streaming.query import StreamingQuery

from goqueue.pipeline.session.session import SessionOptions, start_session

SOURCE, TARGET = "in", "out"
STARTED = "started"


def changed(value: bytes) -> bytes:
    """What the query makes of a value."""
    return value.upper() + b"!"


def main() -> None:
    kafka, checkpoint, offsets_max = sys.argv[1:4]
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = start_session(SessionOptions(master="local[2]", settings=settings, is_short=True))
    rows = spark.readStream.format("goqueue").option("bootstrap.servers", kafka)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", offsets_max)
    frame = rows.option("subscribe", SOURCE).load()
    text = frame.selectExpr("key", "cast(concat(upper(cast(value as string)), '!') as binary) value")
    writer = text.writeStream.format("goqueue").option("bootstrap.servers", kafka).option("topic", TARGET)
    query = writer.option("checkpointLocation", checkpoint).start()
    print(STARTED, flush=True)
    threading.Thread(target=_stop_when_told, args=[query], daemon=True).start()
    query.awaitTermination()
    spark.stop()


def _stop_when_told(query: StreamingQuery) -> None:
    if sys.stdin.readline():
        query.stop()


if __name__ == "__main__":
    main()
