"""Rows out of Spark into a topic: exactly once, once per task and at least once, against Spark's own connector and against a
sink that drops everything. Every topic is read back afterwards: each row once, whole, with its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bench.child import Broker
from bench.kafka_lines import Figures, compare
from bench.line import Bound, Goal, Line, require
from bench.peers.spark_connector import FORMAT as CONNECTOR_FORMAT
from bench.peers.spark_connector import NAME as CONNECTOR
from bench.peers.spark_connector import connector_title
from bench.scale import Run
from bench.sides import interleave
from bench.spark_bench import CORES, Pass
from bench.spark_null import FORMAT as NULL_FORMAT
from bench.spark_topics import read_topic
from bench.workspace import fresh_folder
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.sink.options import Guarantee

VALUE_BYTES = 100
KEY_BYTES = 8
NUMBER_DIGITS = 12
PARTITION_COUNT = 4
_TASK_COUNT = 2 * CORES
_NULL = "null"
_EXACTLY_ONCE = Goal(Bound.VALUE_AT_LEAST, 500_000)
_VS_CONNECTOR = Goal(Bound.RATIO_AT_LEAST, 1.0)
_FIGURES: Figures[Pass] = {
    "rows_per_s_per_core": lambda one: one.rate_per_core,
    "mb_per_s_per_core": lambda one: one.mb_per_s_per_core,
    "cpu_s_per_million": lambda one: one.cpu_s_per_million,
    "server_cpu_s_per_million": lambda one: one.server_cpu_s_per_million,
}


@dataclass(frozen=True, slots=True)
class Writing:
    """One way to write rows into a topic."""

    name: str
    title: str
    write: Callable[[str], object]
    is_kept: bool = True


def run(run: Run) -> list[Line]:
    if not run.spark.has_spark():
        return []
    scale = run.scale.spark
    with fresh_folder(run.folder) as folder, Broker(folder / "data") as broker:
        origin = Origin(f"127.0.0.1:{broker.ports['kafka']}")
        frame = run.spark.session().range(0, scale.sink_row_count, 1, _TASK_COUNT).selectExpr(*columns())
        sides = _writings(run, origin, frame)
        serials = count()

        def measure(side: Writing) -> Pass:
            topic = f"written-{next(serials)}"
            with origin.connect() as cluster:
                cluster.create_topic(topic, PARTITION_COUNT)
            found = run.spark.timed(
                lambda: side.write(topic), scale.sink_row_count, VALUE_BYTES + KEY_BYTES, broker.cpu_s
            )
            if side.is_kept:
                verify(origin, topic, scale.sink_row_count)
            return found

        for side in sides:
            measure(side)  # to warm up
        taken = interleave(sides, scale.round_count, measure)
    return _lines({side.name: side for side in sides}, taken)


def columns() -> tuple[str, str]:
    """Of a frame with `id`: little work for Spark, and a value that says which row it is."""
    number = f"lpad(cast(id as string), {NUMBER_DIGITS}, '0')"
    filler = f"repeat('x', {VALUE_BYTES - NUMBER_DIGITS})"
    return (
        f"lpad(cast(id as string), {KEY_BYTES}, '0') key",
        f"cast(concat({number}, {filler}) as binary) value",
    )


def _writings(run: Run, origin: Origin, frame: DataFrame) -> list[Writing]:
    sides = [
        Writing(
            guarantee.value,
            f"guarantee={guarantee.value}",
            partial(_write, origin, frame, guarantee),
        )
        for guarantee in Guarantee
    ]
    dropping = frame.write.format(NULL_FORMAT).mode("append")
    sides.append(Writing(_NULL, "a sink that drops everything", lambda topic: dropping.save(), is_kept=False))
    if run.spark.has_connector:
        theirs = frame.write.format(CONNECTOR_FORMAT).option(
            "kafka.bootstrap.servers", origin.bootstrap or ""
        )
        title = f"{connector_title()} on our broker, at least once"
        sides.append(Writing(CONNECTOR, title, lambda topic: theirs.option("topic", topic).save()))
    return sides


def _write(origin: Origin, frame: DataFrame, guarantee: Guarantee, topic: str) -> None:
    origin.write(frame, topic=topic, guarantee=guarantee.value)


def verify(origin: Origin, topic: str, row_count: int) -> None:
    """Each row is there once, with its key and nothing else in its value."""
    seen = np.zeros(row_count, np.int64)
    for _, batch in read_topic(origin.access(topic=topic), topic, ("key", "value")):
        numbers = numbers_of(batch)
        require(int(numbers.max()) < row_count, f"a row of {topic} was never written")
        seen += np.bincount(numbers, minlength=row_count)
    lost, doubled = int((seen == 0).sum()), int((seen > 1).sum())
    require(
        lost == 0 and doubled == 0,
        f"{lost} rows of {row_count} are not in {topic}, {doubled} are there twice",
    )


def numbers_of(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Which rows these are."""
    keys, values = _texts(batch.column("key"), KEY_BYTES), _texts(batch.column("value"), VALUE_BYTES)
    numbers = _parsed(values[:, :NUMBER_DIGITS])
    require(bool((values[:, NUMBER_DIGITS:] == ord("x")).all()), "a value has other bytes than were written")
    require(bool((_parsed(keys) == numbers).all()), "a row has the key of another one")
    return numbers


def _texts(column: pa.Array, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    require(column.null_count == 0 and bool((np.diff(offsets) == width).all()), "a row has another length")
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)


def _parsed(
    digits: np.ndarray[tuple[int, int], np.dtype[np.uint8]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    powers = 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = (digits.astype(np.int64) - ord("0")) @ powers
    return found


def _lines(sides: dict[str, Writing], taken: dict[str, list[Pass]]) -> list[Line]:
    def against(name: str, peers: list[str], goals: dict[str, Goal]) -> list[Line]:
        return compare(
            [sides[name], *(sides[peer] for peer in peers if peer in sides)],
            taken,
            name=f"spark.write.{name}",
            title=f"rows out of Spark, {VALUE_BYTES} B, {sides[name].title}",
            unit="rows/s",
            value=lambda one: one.rate,
            figures=_FIGURES,
            goals=goals,
        )

    least = Guarantee.AT_LEAST_ONCE.value
    return [
        *against(
            Guarantee.EXACTLY_ONCE.value,
            [least, _NULL, CONNECTOR],
            {least: _EXACTLY_ONCE, CONNECTOR: _VS_CONNECTOR},
        ),
        *against(Guarantee.PER_TASK.value, [least], {}),
        *against(least, [_NULL], {}),
    ]
