"""Readers at the end of a partition whose newest batches have no records (all of them are delayed): stock clients get past
such a gap without a word, and go on with what comes behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from tests.support.broker import Broker
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import TIMEOUT_S, Confluent, Record, confluent, new_topic, quiet_broker
from tests.support.kafka_isolation import COMMITTED, UNCOMMITTED

from goqueue.model.delay import DELIVER_AT_HEADER

ANSWERS_MAX = 10  # without a record, until librdkafka takes the next message for one that is too large
GAPS = ANSWERS_MAX + 5
FAR_AWAY_MS = 3_600_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("gaps")) as running:
        yield running


def delayed() -> Record:
    due_ms = int(time.time() * 1_000) + FAR_AWAY_MS
    return Record(b"later", headers=((DELIVER_AT_HEADER, b"%d" % due_ms),))


class ConfluentReader:
    def __init__(self, kafka: str, topic: str, isolation: str) -> None:
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "gaps",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 200,  # the end is told by an answer with nothing in it
            }
        )
        self._consumer.assign([confluent.TopicPartition(topic, 0, 0)])

    def __enter__(self) -> ConfluentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read_until(self, end: int) -> list[Any]:
        """Values, until the end of the partition is told to be there; every error is one too many."""
        values: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for one in self._consumer.consume(100, 0.2):
                if one.error() is None:
                    values.append(one.value())
                else:
                    assert one.error().code() == confluent.KafkaError._PARTITION_EOF, one.error()
                    if one.offset() == end:
                        return values
        raise AssertionError(f"the reader did not get to {end}; it has {values}")


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_librdkafka_at_the_end_passes_gap_after_gap_in_silence(served: Broker, isolation: str) -> None:
    topic = new_topic(served)
    client = Confluent(served.kafka)
    with ConfluentReader(served.kafka, topic, isolation) as reader:
        for end in range(1, GAPS + 1):
            client.send(topic, [delayed()])
            assert reader.read_until(end) == []
        client.send(topic, [Record(b"now")])
        assert reader.read_until(GAPS + 1) == [b"now"]


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_every_client_that_comes_later_gets_past_a_run_of_gaps(served: Broker, isolation: str) -> None:
    topic = new_topic(served)
    client = Confluent(served.kafka)
    client.send(topic, [Record(b"first")])
    for _ in range(GAPS):
        client.send(topic, [delayed()])
    end = 1 + GAPS
    with ConfluentReader(served.kafka, topic, isolation) as reader:
        assert reader.read_until(end) == [b"first"]
    assert asyncio.run(_position_of_aiokafka(served.kafka, topic, isolation, end)) == end
    assert _position_of_kafka_python(served.kafka, topic, isolation, end) == end


async def _position_of_aiokafka(kafka: str, topic: str, isolation: str, end: int) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level=isolation)
    await consumer.start()
    place = AioPartition(topic, 0)
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        async with asyncio.timeout(TIMEOUT_S):
            while await consumer.position(place) < end:
                await consumer.getmany(timeout_ms=200)
        return int(await consumer.position(place))
    finally:
        await consumer.stop()


def _position_of_kafka_python(kafka: str, topic: str, isolation: str, end: int) -> int:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=kafka, isolation_level=isolation)
    place = kafka_python.TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        deadline = time.monotonic() + TIMEOUT_S
        while consumer.position(place) < end and time.monotonic() < deadline:
            consumer.poll(timeout_ms=200)
        return int(consumer.position(place))
    finally:
        consumer.close()
