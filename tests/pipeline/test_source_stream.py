"""`spark.readStream.format("goqueue")`: nothing lost and nothing read twice over restarts, crashes, growth and loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.broker import Broker
from tests.support.spark_topics import Topics

TIMEOUT_S = 120


class Stream:
    """A query whose batches are kept by their id, as an idempotent sink would keep them."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self._spark = spark
        self._needed = {"bootstrap.servers": broker.kafka, "subscribe": topic}
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[str]] = {}
        self.written_again: dict[int, list[str]] = {}

    def run(self, **options: str | int) -> StreamingQuery:
        """Everything that is there now; returns when it is done."""
        query = self._start(self._keep, is_endless=False, **options)
        assert query.awaitTermination(TIMEOUT_S)
        return query

    def follow(self, **options: str | int) -> StreamingQuery:
        return self._start(self._keep, is_endless=True, **options)

    def crash(self, **options: str | int) -> None:
        """Fail in the first batch, after its offsets are logged."""

        def fail(frame: DataFrame, batch_id: int) -> None:
            raise RuntimeError("as if the driver had died")

        with pytest.raises(StreamingQueryException, match="as if the driver had died"):
            self._start(fail, is_endless=False, **options).awaitTermination(TIMEOUT_S)

    def forget_commit(self, batch_id: int) -> None:
        """As if it had died between the write of a batch and its commit."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def logged(self, batch_id: int) -> dict[str, object]:
        """The offset of a batch in the checkpoint."""
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        found: dict[str, object] = json.loads(lines[-1])
        return found

    @property
    def values(self) -> list[str]:
        return [value for batch_id in sorted(self.batches) for value in self.batches[batch_id]]

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        rows = sorted(bytes(row.value).decode() for row in frame.select("value").collect())
        if batch_id in self.batches:
            self.written_again[batch_id] = rows
        self.batches[batch_id] = rows

    def _start(
        self, write: Callable[[DataFrame, int], None], *, is_endless: bool, **options: str | int
    ) -> StreamingQuery:
        frame = self._spark.readStream.format("goqueue").options(**{**self._needed, **options}).load()
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
        return (
            writer.trigger(processingTime="0 seconds").start()
            if is_endless
            else writer.trigger(availableNow=True).start()
        )


@pytest.fixture
def topics(shared_broker: Broker) -> Topics:
    return Topics(shared_broker)


@pytest.fixture
def stream(spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, shared_broker, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, end)]


def texts(start: int, end: int) -> list[str]:
    return [number.decode() for number in numbers(start, end)]


def test_latest_loses_nothing_that_comes_before_the_first_batch_is_done(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.send(topic, numbers(0, 50))
    stream.crash(startingOffsets="latest")
    topics.send(topic, numbers(50, 80))
    topics.send(topic, numbers(80, 90), partition=1)
    stream.run(startingOffsets="latest")
    assert sorted(stream.values) == texts(50, 90)
    assert stream.logged(0)["@from"] == {topic: {"0": 50, "1": 0}}


def test_restart_at_any_step_reads_each_record_once_and_replays_the_same_rows(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    options: dict[str, str | int] = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 20,
        "group.id": f"g-{topic}",
    }
    topics.send(topic, numbers(0, 50))
    query = stream.run(**options)
    assert [len(rows) for rows in stream.batches.values()] == [20, 20, 10]
    assert json.loads(query.recentProgress[0].sources[0].latestOffset or "") == {topic: {"0": 50, "1": 0}}
    topics.send(topic, numbers(50, 75), partition=1)
    stream.forget_commit(2)
    before = dict(stream.batches)
    stream.run(**options)
    assert stream.written_again == {2: before[2]}
    topics.send(topic, numbers(75, 80))
    stream.run(**options)
    stream.run(**options)  # nothing is new
    assert sorted(stream.values) == texts(0, 80)
    assert max(len(rows) for rows in stream.batches.values()) == 20
    assert topics.group_offsets(f"g-{topic}", topic, 2) == [55, 25]


def test_partitions_that_are_added_while_it_runs_are_read_from_their_beginning(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, 1)
    topics.send(topic, numbers(0, 5))
    query = stream.follow()
    query.processAllAvailable()
    assert stream.values == []
    topics.send(topic, numbers(5, 10))
    query.processAllAvailable()
    topics.grow(topic, 3)
    topics.send(topic, numbers(10, 20), partition=2)
    query.processAllAvailable()
    topics.send(topic, numbers(20, 25), partition=1)
    query.processAllAvailable()
    assert sorted(stream.values) == texts(5, 25)


def test_offsets_that_aged_out_and_a_topic_that_is_made_again_are_named_or_passed_over(
    stream: Stream, topics: Topics, topic: str
) -> None:
    topics.create(topic, 1)
    topics.send(topic, numbers(0, 30))
    stream.run(startingOffsets="earliest")
    topics.send(topic, numbers(30, 60))
    topics.delete_before(topic, 0, 40)
    with pytest.raises(StreamingQueryException) as caught:
        stream.run()
    assert f"offsets [30, 40) of {topic}-0 are gone" in str(caught.value)
    stream.run(failOnDataLoss="false")
    assert stream.values == texts(0, 30) + texts(40, 60)
    topics.delete(topic)
    with pytest.raises(StreamingQueryException) as caught:
        stream.run()
    assert f"{topic}-0 is gone; the query had read it up to 60" in str(caught.value)
    topics.create(topic, 1)
    topics.send(topic, numbers(60, 65))
    stream.run(failOnDataLoss="false")
    assert stream.values == texts(0, 30) + texts(40, 65)


def test_checkpoint_of_another_topic_is_refused(stream: Stream, topics: Topics, topic: str) -> None:
    for name in (topic, f"{topic}-b"):
        topics.create(name, 1)
    stream.run(startingOffsets="earliest")
    with pytest.raises(StreamingQueryException) as caught:
        stream.run(subscribe=f"{topic}-b")
    assert f"the checkpoint has offsets of {topic}, which this query does not read" in str(caught.value)
