"""What one stock client writes every other reads, byte for byte: all codecs, all acks, keys, headers, nulls, times."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from tests.support.broker import Broker
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import (
    CLIENTS,
    HAS_KCAT,
    TIMEOUT_S,
    WITHOUT_KCAT,
    Client,
    Confluent,
    Read,
    Record,
    confluent,
    new_topic,
    quiet_broker,
    until,
)

MIB = 1024 * 1024
CLIENT_BYTES = 999_000  # librdkafka's own limit is a million
TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITION_COUNT = 3
TOO_LARGE = 10


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, served: Broker) -> Client:
    return client_of(request.param, served)


def client_of(name: str, served: Broker) -> Client:
    if name == "kcat" and not HAS_KCAT:
        pytest.skip(WITHOUT_KCAT)
    return CLIENTS[name](served.kafka)


def sample(client: Client) -> list[Record]:
    """Repetitive, so that codecs have something to do; the last three are the special cases."""
    records = [
        Record(
            value=b"value %d " % at * 20,
            key=b"key %d" % (at % 5),
            headers=(("kind", b"order"), ("kind", b"repeated"), ("trace", b"abc")),
            timestamp_ms=TIME_MS + at if client.may_time else None,
            partition=at * PARTITION_COUNT // 60,
        )
        for at in range(60)
    ]
    records.append(Record(None, key=b"gone"))
    records.append(Record(b"without a key", partition=1))
    records.append(Record(b"\xc3\xa4 = a with dots", key=b"\xc3\xa4", partition=2))
    return records


def ends_of(records: list[Record]) -> dict[int, int]:
    ends: dict[int, int] = defaultdict(int)
    for one in records:
        ends[one.partition] += 1
    return ends


def check_same(records: list[Record], rows: list[Read], *, timed: bool) -> None:
    """Each partition has its records in the order they were sent, at offsets without a gap."""
    for partition, end in ends_of(records).items():
        sent = [one for one in records if one.partition == partition]
        found = [row for row in rows if row.partition == partition]
        assert [row.offset for row in found] == list(range(end))
        assert [(row.key, row.value, row.headers) for row in found] == [
            (one.key, one.value, one.headers) for one in sent
        ]
        if timed:
            expected = [one.timestamp_ms for one in sent if one.timestamp_ms is not None]
            assert [row.timestamp_ms for row in found][: len(expected)] == expected


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_writes_every_client_reads(served: Broker, client: Client, codec: str) -> None:
    topic = new_topic(served, partitions=PARTITION_COUNT)
    records = sample(client)
    client.send(topic, records, codec=codec)
    for name in CLIENTS:
        if name == "kcat" and not HAS_KCAT:
            continue
        reader = CLIENTS[name](served.kafka)
        check_same(records, reader.read(topic, ends_of(records)), timed=client.may_time)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_stores_the_records(served: Broker, client: Client, acks: str) -> None:
    topic = new_topic(served, partitions=PARTITION_COUNT)
    records = sample(client)
    client.send(topic, records, acks=acks)
    check_same(records, client.read(topic, ends_of(records)), timed=client.may_time)


@pytest.mark.parametrize("name", ["confluent", "kafka-python", "aiokafka"])
def test_records_up_to_the_limit_go_through(served: Broker, name: str) -> None:
    topic = new_topic(served)
    client = client_of(name, served)
    values = [b"a" * CLIENT_BYTES, b"b", b"c" * CLIENT_BYTES]
    client.send(topic, [Record(value) for value in values])
    assert [row.value for row in client.read(topic, {0: 3})] == values


def test_a_record_above_the_limit_is_refused_as_too_large_by_the_broker(served: Broker) -> None:
    """Clients have a limit of their own; here it is raised so that the broker's is met."""
    topic = new_topic(served)
    value = b"x" * (MIB + 1024)
    codes: list[int] = []
    producer = confluent.Producer({"bootstrap.servers": served.kafka, "message.max.bytes": 8 * MIB})
    producer.produce(topic, value, on_delivery=lambda error, _: codes.append(error.code()))
    assert producer.flush(TIMEOUT_S) == 0
    assert codes == [TOO_LARGE]

    other = kafka_python.KafkaProducer(bootstrap_servers=served.kafka, max_request_size=8 * MIB)
    try:
        with pytest.raises(kafka_python.errors.MessageSizeTooLargeError):
            other.send(topic, value).get(timeout=TIMEOUT_S)
    finally:
        other.close()
    asyncio.run(_refused_by_aiokafka(served, topic, value))
    Confluent(served.kafka).send(topic, [Record(b"fits")])
    assert [row.value for row in Confluent(served.kafka).read(topic, {0: 1})] == [b"fits"]


async def _refused_by_aiokafka(served: Broker, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=served.kafka, max_request_size=8 * MIB, max_batch_size=8 * MIB
    )
    await producer.start()
    try:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


@pytest.mark.parametrize("name", ["confluent", "kafka-python", "aiokafka"])
def test_many_partitions_keep_their_order(served: Broker, name: str) -> None:
    topic = new_topic(served, partitions=50)
    records = [Record(b"%d" % at, partition=at % 50) for at in range(2_000)]
    client = client_of(name, served)
    client.send(topic, records)
    check_same(records, client.read(topic, ends_of(records)), timed=False)


@pytest.mark.parametrize("name", ["confluent", "kafka-python", "aiokafka"])
def test_a_topic_that_nobody_made_is_there_on_the_first_write(served: Broker, name: str) -> None:
    topic = f"first-{name}-{new_topic(served)}"
    client = client_of(name, served)
    client.send(topic, [Record(b"first")])
    assert [row.value for row in client.read(topic, {0: 1})] == [b"first"]


def test_a_key_has_one_partition_whichever_client_chooses(served: Broker) -> None:
    """kafka-python and aiokafka hash with murmur2; confluent-kafka does when told to, as Java does."""
    topic = new_topic(served, partitions=5)
    keys = [b"key %d" % at for at in range(40)]
    chosen = confluent.Producer({"bootstrap.servers": served.kafka, "partitioner": "murmur2_random"})
    for key in keys:
        chosen.produce(topic, b"confluent", key)
    assert chosen.flush(TIMEOUT_S) == 0
    other = kafka_python.KafkaProducer(bootstrap_servers=served.kafka)
    for key in keys:
        other.send(topic, b"kafka-python", key=key)
    other.close()
    asyncio.run(_keyed_by_aiokafka(served, topic, keys))
    ends = {index: _end_of(served, topic, index) for index in range(5)}
    partitions = defaultdict(set)
    for row in Confluent(served.kafka).read(topic, ends):
        partitions[row.key].add(row.partition)
    assert sum(ends.values()) == 3 * len(keys)
    assert {key: len(found) for key, found in partitions.items()} == dict.fromkeys(keys, 1)


async def _keyed_by_aiokafka(served: Broker, topic: str, keys: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=served.kafka) as producer:
        for key in keys:
            await producer.send_and_wait(topic, b"aiokafka", key=key)


def _end_of(served: Broker, topic: str, index: int) -> int:
    consumer = confluent.Consumer({"bootstrap.servers": served.kafka, "group.id": "ends"})
    try:
        end: int = consumer.get_watermark_offsets(confluent.TopicPartition(topic, index), timeout=TIMEOUT_S)[
            1
        ]
        return end
    finally:
        consumer.close()


def test_a_consumer_that_waits_gets_what_comes(served: Broker) -> None:
    """The fetch is parked at the end of the log and answered by the produce, not by its timeout."""
    topic = new_topic(served)
    consumer = confluent.Consumer(
        {"bootstrap.servers": served.kafka, "group.id": "waiting", "fetch.wait.max.ms": 30_000}
    )
    found: list[bytes] = []

    def wait() -> None:
        while len(found) < 3 and (message := consumer.poll(TIMEOUT_S)) is not None:
            found.append(message.value())

    def has_all() -> bool:
        return found == sent

    sent: list[bytes] = []
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        waiting = threading.Thread(target=wait)
        waiting.start()
        for at in range(3):
            sent.append(b"%d" % at)
            Confluent(served.kafka).send(topic, [Record(sent[-1])])
            until(has_all, "the waiting consumer gets the record", timeout_s=20)
        waiting.join()
    finally:
        consumer.close()
