"""`writeStream.format("goqueue")`: each micro-batch once and whole, wherever the query is interrupted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tests.support.faulty_sink as faulty_sink
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.broker import Broker
from tests.support.faulty_sink import FAULTS, FORMAT, Faults, FaultySource
from tests.support.kafka_clients import until
from tests.support.sink_target import Target

ROWS_PER_FILE = 500
RUN_TIMEOUT_S = 120
RESTARTS_MAX = 20


@pytest.fixture(scope="module")
def faulty_spark(spark: SparkSession) -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call] # the workers cannot import tests
    spark.dataSource.register(FaultySource)
    yield spark
    cloudpickle.unregister_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call] # as above


class Copy:
    """A query that copies text files to a topic, a file for each micro-batch."""

    def __init__(self, spark: SparkSession, target: Target, folder: Path, **options: str) -> None:
        self.spark = spark
        self.target = target
        self.folder = folder
        self.options = options
        self.faults = Faults(folder / "faults")
        for name in ("input", "faults"):
            (folder / name).mkdir()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def add_file(self, number: int) -> None:
        draft = self.folder / f"{number}.draft"
        draft.write_text("".join(f"{number}/{row}\n" for row in range(ROWS_PER_FILE)))
        os.utime(draft, (1_000_000 + number, 1_000_000 + number))  # Spark takes the oldest first
        draft.rename(self.folder / "input" / f"{number:04}.txt")

    def run(self, tasks: int = 2) -> None:
        """Until there is nothing left to copy, or the query fails."""
        frame = self.spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        rows = frame.text(str(self.folder / "input")).repartition(tasks)
        writer = rows.writeStream.format(FORMAT).trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", self.target.broker.kafka).option(
            "topic", self.target.topic
        )
        writer = writer.option("checkpointLocation", str(self.checkpoint)).option(
            FAULTS, str(self.faults.folder)
        )
        query = writer.options(**self.options).start()
        try:
            assert query.awaitTermination(RUN_TIMEOUT_S)
        finally:
            query.stop()

    def run_until_done(self) -> list[str]:
        """What the query failed of. Its rows are in other tasks after a restart than before."""
        failures: list[str] = []
        while len(failures) < RESTARTS_MAX:
            try:
                self.run(tasks=2 + len(failures) % 2)
                break
            except StreamingQueryException as failure:
                failures.append(str(failure))
            files = self.copied_files()
            assert files == list(range(len(files)))
        return failures

    def copied_files(self) -> list[int]:
        """Those whose rows can be seen. A file is there as a whole and once, or not at all."""
        seen = sorted(row.value or b"" for row in self.target.rows())
        numbers = sorted({int(value.split(b"/")[0]) for value in seen})
        assert seen == sorted(
            f"{number}/{row}".encode() for number in numbers for row in range(ROWS_PER_FILE)
        )
        return numbers


@pytest.fixture
def copy(faulty_spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path) -> Copy:
    return Copy(faulty_spark, Target(shared_broker, topic).create(), tmp_path)


def task_joints(broker: Broker) -> set[bytes]:
    """The joints of single tasks that the broker has written down."""
    logs = broker.data_dir.rglob("__transaction_state/*/*.log")
    return {name for log in logs for name in re.findall(rb"spark-task-[0-9a-f-]+", log.read_bytes())}


def test_query_that_fails_at_every_step_leaves_neither_loss_nor_duplicate(copy: Copy) -> None:
    steps = ["begun", "written", "committing", "committed"]
    for number in range(len(steps) + 1):
        copy.add_file(number)
    for batch, step in enumerate(steps):
        is_in_task = step in ("begun", "written")
        copy.faults.plan(step, batch, count=4 if is_in_task else 1)  # two tasks, each tried twice
    failures = copy.run_until_done()
    assert all("a fault" in failure for failure in failures)
    assert copy.faults.are_over
    assert len(failures) >= len(steps)
    assert copy.copied_files() == [0, 1, 2, 3, 4]
    until(lambda: copy.target.is_settled, "readers go on")


def test_task_that_is_tried_again_writes_once(copy: Copy) -> None:
    copy.add_file(0)
    copy.faults.plan("written", 0)
    copy.run()
    assert copy.faults.are_over
    assert copy.copied_files() == [0]
    until(lambda: copy.target.is_settled, "readers go on")


def test_batch_whose_commit_was_not_noted_in_the_checkpoint_is_not_written_again(copy: Copy) -> None:
    copy.add_file(0)
    copy.add_file(1)
    copy.run()
    for name in ("1", ".1.crc"):
        (copy.checkpoint / "commits" / name).unlink(missing_ok=True)
    copy.add_file(2)
    copy.run(tasks=3)
    assert copy.copied_files() == [0, 1, 2]
    assert {path.name for path in (copy.checkpoint / "commits").iterdir()} >= {"0", "1", "2"}


def test_abort_that_never_comes_costs_nothing_but_time(copy: Copy) -> None:
    """The tasks have written, and the driver can neither commit nor abort: as if it had died."""
    copy.add_file(0)
    copy.faults.plan("committing", 0)
    copy.faults.plan("aborting", 0)
    with pytest.raises(StreamingQueryException):
        copy.run()
    assert not copy.target.is_settled
    assert copy.copied_files() == []
    copy.run()
    assert copy.copied_files() == [0]
    until(lambda: copy.target.is_settled, "readers go on")


def test_stream_of_tasks_that_commit_for_themselves_arrives(
    faulty_spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Each task has one name for all batches of a run, and another one in the next, when its rows may be others."""
    copy = Copy(faulty_spark, Target(shared_broker, topic).create(), tmp_path, guarantee="per_task")
    copy.add_file(0)
    copy.add_file(1)
    copy.faults.plan("written", 1)
    before = task_joints(shared_broker)
    copy.run()
    assert copy.copied_files() == [0, 1]
    assert len(task_joints(shared_broker) - before) == 2
    for name in ("1", ".1.crc"):
        (copy.checkpoint / "commits" / name).unlink(missing_ok=True)
    copy.run()
    assert len(copy.target.rows()) == 3 * ROWS_PER_FILE
    assert len(task_joints(shared_broker) - before) == 4


def test_foreach_batch_writes_once_under_a_name(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    targets = [Target(shared_broker, name).create() for name in (topic, f"{topic}-b")]

    def write(rows: DataFrame, version: int) -> None:
        """To two topics under one name, as foreachBatch may."""
        writer = rows.write.format("goqueue").mode("append").option("bootstrap.servers", shared_broker.kafka)
        for target in targets:
            writer.options(topic=target.topic, txnAppId=f"app-{topic}", txnVersion=version).save()

    frame = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value")
    write(frame, 7)
    write(frame, 7)
    write(frame, 8)
    assert [len(target.rows()) for target in targets] == [20, 20]
