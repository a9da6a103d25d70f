"""Where a stock consumer reads: by offset, by time, from either end, out of range, after DeleteRecords, paused, lagging."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import OffsetOutOfRangeError
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin, KafkaPythonAdmin, kafka_python
from tests.support.kafka_clients import (
    TIMEOUT_S,
    Confluent,
    Record,
    confluent,
    new_name,
    new_topic,
    quiet_broker,
    until,
)

COUNT = 100
TIME_MS = 1_700_000_000_000
STEP_MS = 1_000  # between the times of two records
OUT_OF_RANGE = 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("positions")) as running:
        yield running


@pytest.fixture(scope="module")
def filled(served: Broker) -> str:
    """A topic of many small segments with a hundred records a second apart."""
    topic = new_topic(served, segment_bytes="1024", retention_ms="-1")
    records = [Record(b"%d" % at, timestamp_ms=TIME_MS + at * STEP_MS) for at in range(COUNT)]
    for start in range(0, COUNT, 10):
        Confluent(served.kafka).send(topic, records[start : start + 10])
    return topic


def confluent_consumer(served: Broker, **settings: object) -> Any:  # a library whose types are wrong
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent.Consumer({"bootstrap.servers": served.kafka, "group.id": new_name("g"), **named})


def next_value(consumer: Any) -> bytes:
    message = consumer.poll(TIMEOUT_S)
    assert message is not None, "nothing came"
    assert message.error() is None, message.error()
    value: bytes = message.value()
    return value


class TestConfluent:
    def test_seeks_by_offset(self, served: Broker, filled: str) -> None:
        consumer = confluent_consumer(served)
        consumer.assign([confluent.TopicPartition(filled, 0, 40)])
        assert next_value(consumer) == b"40"
        for offset in (99, 0, 57):
            consumer.seek(confluent.TopicPartition(filled, 0, offset))
            assert next_value(consumer) == b"%d" % offset
        (place,) = consumer.position([confluent.TopicPartition(filled, 0)])
        assert place.offset == 58
        consumer.close()

    def test_starts_at_either_end(self, served: Broker) -> None:
        topic = new_topic(served)
        Confluent(served.kafka).send(topic, [Record(b"old"), Record(b"older")])
        first, last = confluent_consumer(served), confluent_consumer(served)
        first.assign([confluent.TopicPartition(topic, 0, confluent.OFFSET_BEGINNING)])
        assert next_value(first) == b"old"
        last.assign([confluent.TopicPartition(topic, 0, confluent.OFFSET_END)])
        last.poll(0.1)
        # "The end" is where the log ends when the consumer asks: something is written until it got there.
        message = None
        deadline = time.monotonic() + TIMEOUT_S
        while message is None and time.monotonic() < deadline:
            Confluent(served.kafka).send(topic, [Record(b"new")])
            message = last.poll(0.2)
        assert message is not None
        assert message.value() == b"new"
        first.close()
        last.close()

    def test_finds_offsets_by_time(self, served: Broker, filled: str) -> None:
        consumer = confluent_consumer(served)
        for time_ms, offset in TIMES.items():
            place = confluent.TopicPartition(filled, 0, time_ms)
            (found,) = consumer.offsets_for_times([place], timeout=TIMEOUT_S)
            assert found.offset == (confluent.OFFSET_END if offset is None else offset)
        consumer.close()

    def test_tells_watermarks(self, served: Broker, filled: str) -> None:
        consumer = confluent_consumer(served)
        place = confluent.TopicPartition(filled, 0)
        assert consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) == (0, COUNT)
        consumer.close()

    @pytest.mark.parametrize(("policy", "expected"), [("earliest", b"0"), ("latest", b"new")])
    def test_out_of_range_goes_where_the_policy_says(
        self, served: Broker, policy: str, expected: bytes
    ) -> None:
        topic = new_topic(served)
        Confluent(served.kafka).send(topic, [Record(b"0")])
        consumer = confluent_consumer(served, auto_offset_reset=policy)
        consumer.assign([confluent.TopicPartition(topic, 0, 1_000)])
        message = None
        deadline = time.monotonic() + TIMEOUT_S
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.3)
            if message is None:
                Confluent(served.kafka).send(topic, [Record(b"new")])
        assert message is not None
        assert message.value() == expected
        consumer.close()

    def test_out_of_range_is_an_error_where_the_policy_says_so(self, served: Broker, filled: str) -> None:
        consumer = confluent_consumer(served, auto_offset_reset="error")
        consumer.assign([confluent.TopicPartition(filled, 0, 1_000)])
        message = consumer.poll(TIMEOUT_S)
        assert message.error().code() == confluent.KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str()
        consumer.close()

    def test_reads_on_after_records_are_deleted(self, served: Broker) -> None:
        topic = new_topic(served)
        Confluent(served.kafka).send(topic, [Record(b"%d" % at) for at in range(10)])
        consumer = confluent_consumer(served, auto_offset_reset="earliest")
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        assert next_value(consumer) == b"0"
        admin = ConfluentAdmin(served.kafka)
        deleted = admin.client.delete_records([confluent.TopicPartition(topic, 0, 6)])
        assert [future.result(TIMEOUT_S).low_watermark for future in deleted.values()] == [6]
        place = confluent.TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) == (6, 10)
        consumer.seek(confluent.TopicPartition(topic, 0, 2))
        assert [next_value(consumer) for _ in range(4)] == [b"6", b"7", b"8", b"9"]
        consumer.close()

    def test_pauses_one_partition_and_resumes_it(self, served: Broker) -> None:
        topic = new_topic(served, partitions=2)
        records = [Record(b"%d" % at, partition=at % 2) for at in range(20)]
        Confluent(served.kafka).send(topic, records)
        consumer = confluent_consumer(served)
        places = [confluent.TopicPartition(topic, index, 0) for index in range(2)]
        consumer.assign(places)
        consumer.pause([places[0]])
        assert [int(next_value(consumer)) for _ in range(10)] == list(range(1, 20, 2))
        consumer.resume([places[0]])
        assert [int(next_value(consumer)) for _ in range(10)] == list(range(0, 20, 2))
        consumer.close()

    def test_reports_its_lag(self, served: Broker, filled: str) -> None:
        lags: list[int] = []

        def on_stats(text: str) -> None:
            partition = json.loads(text)["topics"].get(filled, {}).get("partitions", {}).get("0")
            if partition is not None:
                lags.append(partition["consumer_lag"])

        group = new_name("lag")
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": served.kafka,
                "group.id": group,
                "statistics.interval.ms": 100,
                "stats_cb": on_stats,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([confluent.TopicPartition(filled, 0, 0)])
        assert [int(next_value(consumer)) for _ in range(30)] == list(range(30))
        consumer.commit(asynchronous=False)
        consumer.pause([confluent.TopicPartition(filled, 0)])

        def is_told() -> bool:
            consumer.poll(0.1)
            return 70 in lags

        until(is_told, "a lag of 70")
        consumer.close()


# A time and the first record at or after it. `None`: there is none.
TIMES = {
    TIME_MS - 1: 0,
    TIME_MS: 0,
    TIME_MS + 1: 1,
    TIME_MS + 50 * STEP_MS: 50,
    TIME_MS + 50 * STEP_MS - 1: 50,
    TIME_MS + 99 * STEP_MS: 99,
    TIME_MS + 99 * STEP_MS + 1: None,
}


def polled(consumer: Any, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(values) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=200, max_records=count - len(values)).values():
            values += [one.value for one in batch]
    return values


class TestKafkaPython:
    @pytest.fixture
    def consumer(self, served: Broker) -> Iterator[Any]:
        made = kafka_python.KafkaConsumer(
            bootstrap_servers=served.kafka, group_id=new_name("g"), auto_offset_reset="earliest"
        )
        yield made
        made.close()

    def test_seeks_everywhere(self, consumer: Any, filled: str) -> None:
        place = kafka_python.TopicPartition(filled, 0)
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: COUNT}
        for offset in (40, 99, 0):
            consumer.seek(place, offset)
            assert polled(consumer, 1) == [b"%d" % offset]
        consumer.seek_to_end(place)
        assert consumer.position(place) == COUNT
        consumer.seek_to_beginning(place)
        assert consumer.position(place) == 0
        consumer.seek(place, 95)
        assert polled(consumer, 5) == [b"95", b"96", b"97", b"98", b"99"]
        assert consumer.highwater(place) == COUNT

    def test_finds_offsets_by_time(self, consumer: Any, filled: str) -> None:
        place = kafka_python.TopicPartition(filled, 0)
        for time_ms, offset in TIMES.items():
            found = consumer.offsets_for_times({place: time_ms})[place]
            assert (None if found is None else found.offset) == offset

    def test_out_of_range_goes_where_the_policy_says(self, served: Broker, filled: str) -> None:
        place = kafka_python.TopicPartition(filled, 0)
        for policy in ("earliest", "latest", "none"):
            one = kafka_python.KafkaConsumer(bootstrap_servers=served.kafka, auto_offset_reset=policy)
            one.assign([place])
            one.seek(place, 1_000)
            if policy == "earliest":
                assert polled(one, 1) == [b"0"]
            elif policy == "latest":

                def is_at_end(one: Any = one) -> bool:
                    assert one.poll(timeout_ms=100) == {}
                    return bool(one.position(place) == COUNT)

                until(is_at_end, "the position is the end")
            else:
                with pytest.raises(kafka_python.errors.OffsetOutOfRangeError):
                    polled(one, 1)
            one.close()

    def test_reads_on_after_records_are_deleted(self, served: Broker, consumer: Any) -> None:
        topic = new_topic(served)
        Confluent(served.kafka).send(topic, [Record(b"%d" % at) for at in range(10)])
        place = kafka_python.TopicPartition(topic, 0)
        admin = KafkaPythonAdmin(served.kafka)
        admin.client.delete_records({place: 6})
        admin.close()
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 6}
        consumer.seek(place, 2)
        assert polled(consumer, 4) == [b"6", b"7", b"8", b"9"]

    def test_pauses_and_resumes(self, consumer: Any, filled: str) -> None:
        place = kafka_python.TopicPartition(filled, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        consumer.pause(place)
        assert consumer.poll(timeout_ms=300) == {}
        consumer.resume(place)
        assert polled(consumer, 2) == [b"0", b"1"]


class TestAiokafka:
    def test_seeks_everywhere(self, served: Broker, filled: str) -> None:
        async def main(consumer: Any, place: AioPartition) -> None:
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: COUNT}
            for offset in (40, 99, 0):
                consumer.seek(place, offset)
                assert (await consumer.getone()).value == b"%d" % offset
            await consumer.seek_to_end(place)
            assert await consumer.position(place) == COUNT
            await consumer.seek_to_beginning(place)
            assert (await consumer.getone()).value == b"0"
            assert consumer.highwater(place) == COUNT

        _with_aiokafka(served, filled, main)

    def test_finds_offsets_by_time(self, served: Broker, filled: str) -> None:
        async def main(consumer: Any, place: AioPartition) -> None:
            for time_ms, offset in TIMES.items():
                found = (await consumer.offsets_for_times({place: time_ms}))[place]
                assert (None if found is None else found.offset) == offset

        _with_aiokafka(served, filled, main)

    def test_out_of_range_goes_where_the_policy_says(self, served: Broker, filled: str) -> None:
        async def first(consumer: Any, place: AioPartition) -> None:
            consumer.seek(place, 1_000)
            assert (await consumer.getone()).value == b"0"

        async def refused(consumer: Any, place: AioPartition) -> None:
            consumer.seek(place, 1_000)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

        _with_aiokafka(served, filled, first, policy="earliest")
        _with_aiokafka(served, filled, refused, policy="none")

    def test_pauses_and_resumes(self, served: Broker, filled: str) -> None:
        async def main(consumer: Any, place: AioPartition) -> None:
            consumer.seek(place, 7)
            consumer.pause(place)
            assert await consumer.getmany(timeout_ms=300) == {}
            consumer.resume(place)
            assert (await consumer.getone()).value == b"7"

        _with_aiokafka(served, filled, main)


def _with_aiokafka(served: Broker, topic: str, main: Any, *, policy: str = "earliest") -> None:
    async def run() -> None:
        place = AioPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=served.kafka, auto_offset_reset=policy)
        await consumer.start()
        try:
            consumer.assign([place])
            async with asyncio.timeout(TIMEOUT_S):
                await main(consumer, place)
        finally:
            await consumer.stop()

    asyncio.run(run())
