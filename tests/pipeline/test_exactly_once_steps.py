"""A stream from topic to topic that ends at each step of a micro-batch and begins again: each record once.

The steps are those of a checkpoint: the offsets of a batch are logged, its tasks write, the broker commits, the batch is noted as
done. What an interruption leaves behind is made by hand, so that every test knows exactly where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record, until
from tests.support.sink_target import Target

from goqueue.client.kafka import BatchSender, Enrolled, KafkaCluster, KafkaError
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.record import NewRecord, Producer

TIMEOUT_S = 150
PATIENT_MS = 20_000
PER_BATCH = 40


class Copy:
    """Topic to topic, `PER_BATCH` records in each micro-batch."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self.source = Target(broker, topic).create()
        self.target = Target(broker, f"{topic}-copy").create()
        self.checkpoint = folder / "checkpoint"
        self._trap = folder / "trap"
        self.sent: list[bytes] = []

    def send(self, count: int = PER_BATCH) -> None:
        values = [b"%06d" % number for number in range(len(self.sent), len(self.sent) + count)]
        records = [Record(value, partition=at % 3) for at, value in enumerate(values)]
        Confluent(self._broker.kafka).send(self.source.topic, records)
        self.sent += values

    def run(self, *, tasks: int = 2) -> None:
        """Until all that was sent is copied."""
        query = self.start(tasks)
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()

    def fail_in_tasks(self) -> None:
        """After the offsets are logged, before anything is written."""
        self._trap.touch()
        with pytest.raises(StreamingQueryException, match="a trap"):
            self.run()
        self._trap.unlink()

    def start(self, tasks: int) -> StreamingQuery:
        reader = self._spark.readStream.format("goqueue").option("bootstrap.servers", self._broker.kafka)
        reader = reader.option("subscribe", self.source.topic).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", PER_BATCH).load().select("value").repartition(tasks)
        writer = _trapped(frame, str(self._trap)).writeStream.format("goqueue")
        writer = writer.option("bootstrap.servers", self._broker.kafka).option("topic", self.target.topic)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def forget(self, kind: str, batch: int) -> None:
        """Take `offsets` or `commits` of a batch out of the checkpoint."""
        (self.checkpoint / kind / str(batch)).unlink()
        (self.checkpoint / kind / f".{batch}.crc").unlink(missing_ok=True)

    def batches(self, kind: str) -> list[int]:
        return sorted(int(path.name) for path in (self.checkpoint / kind).glob("[0-9]*"))

    @property
    def joint_id(self) -> str:
        return f"spark-stream-{json.loads((self.checkpoint / 'metadata').read_text())['id']}"

    def enrol(self, batch: int, member: str, *, timeout_ms: int = 900_000) -> Enrolled:
        """As a task of a driver that is gone, which wrote to every partition and then nothing more."""
        try:
            return self._enrol(batch, member, timeout_ms)
        except KafkaError:
            if timeout_ms > PATIENT_MS:
                raise
            # On a machine that is busy otherwise its time was over before it had written.
            return self._enrol(batch, f"{member}-again", PATIENT_MS)

    def _enrol(self, batch: int, member: str, timeout_ms: int) -> Enrolled:
        with KafkaCluster(self._broker.kafka) as cluster:
            found = cluster.enrol(self.joint_id, batch, member, timeout_ms)
            assert isinstance(found, Enrolled)
            with BatchSender(cluster, found.producer, found.transactional_id) as sender:
                for partition in range(3):
                    _, encoded = encode_batch(
                        [NewRecord(None, b"of a task that was lost")],
                        time.time_ns() // 1_000_000,
                        producer=Producer(*found.producer, 0),
                        attributes=ATTRIBUTE_TRANSACTIONAL,
                    )
                    sender.send(self.target.topic, partition, encoded)
            return found

    def check(self, batches: list[int]) -> None:
        """Everything is there once, readers are not held up, and these batches are done."""
        until(lambda: self.target.is_settled, "readers go on")
        assert self.target.values() == sorted(self.sent)
        assert self.batches("offsets") == self.batches("commits") == batches


def _trapped(frame: DataFrame, trap: str) -> DataFrame:
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if Path(trap).exists():
                raise RuntimeError("a trap")
            yield batch

    return frame.mapInArrow(pass_on, "value binary")


@pytest.fixture
def copy(spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path) -> Copy:
    return Copy(spark, shared_broker, topic, tmp_path)


def test_query_that_ends_at_every_step_writes_each_record_once(copy: Copy) -> None:
    copy.send()
    copy.run()
    copy.send()
    copy.fail_in_tasks()  # the offsets of batch 1 are logged, and no more
    assert (copy.batches("offsets"), copy.batches("commits")) == ([0, 1], [0])
    # Tasks have written, and two of them have the names of tasks to come: a new application counts from zero again.
    lost = [copy.enrol(1, name) for name in ("0-0", "1-1", "7-99")]
    assert not copy.target.is_settled
    copy.send()
    copy.run(tasks=3)
    copy.check([0, 1, 2])
    with KafkaCluster(copy.target.broker.kafka) as cluster:  # the dead driver's commit arrives after all
        assert cluster.commit_joint(copy.joint_id, 1, lost) == "already committed"
    copy.forget("commits", 2)  # the broker has committed, and the checkpoint does not know
    copy.send()
    copy.run(tasks=3)
    copy.check([0, 1, 2, 3])
    for kind in ("commits", "offsets"):  # a checkpoint that is put back: the same rows are read again
        copy.forget(kind, 3)
    copy.run()
    copy.check([0, 1, 2, 3])
    begun_s = time.monotonic()
    copy.enrol(4, "0-0", timeout_ms=1_000)  # and a driver that never comes back
    is_open = not copy.target.is_settled
    assert is_open or time.monotonic() >= begun_s + 1.0
    copy.check([0, 1, 2, 3])


def test_orphans_outlive_kills_of_the_broker_and_still_end(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with Broker(tmp_path / "data") as broker:
        copy = Copy(spark, broker, topic, tmp_path)
        copy.send()
        copy.run()
        copy.enrol(1, "0-0", timeout_ms=4_000)
        copy.enrol(1, "1-1", timeout_ms=900_000)
        kafka, http = broker.kafka, broker.address
        broker.kill9()
        for _ in range(2):
            with Broker(tmp_path / "data", kafka=kafka, http=http):
                pass
        with Broker(tmp_path / "data", kafka=kafka, http=http):
            copy.send()
            copy.run()
            copy.check([0, 1])
