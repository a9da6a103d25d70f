"""Stock Kafka clients behind one face: each sends records and reads a topic, with the settings its users have.

So a test says once what must come back, and every library writes it and every library reads it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin, kafka_python

confluent: Any = confluent_kafka  # its types and its documentation disagree
TIMEOUT_S = 60.0
Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Read(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Client(Protocol):
    may_time: bool  # whether a record's time is the sender's choice

    def send(
        self, topic: str, records: Sequence[Record], *, acks: str = "all", codec: str = "none"
    ) -> None: ...

    def read(self, topic: str, ends: Mapping[int, int], *, isolation: str = "read_committed") -> list[Read]:
        """All records of these partitions from the beginning to these offsets."""


class Confluent:
    may_time = True

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka

    def send(self, topic: str, records: Sequence[Record], *, acks: str = "all", codec: str = "none") -> None:
        failures: list[Any] = []
        producer = confluent.Producer(
            {"bootstrap.servers": self._kafka, "acks": acks, "compression.type": codec, "linger.ms": 5}
        )
        for one in records:
            times = {} if one.timestamp_ms is None else {"timestamp": one.timestamp_ms}
            producer.produce(
                topic,
                value=one.value,
                key=one.key,
                partition=one.partition,
                headers=list(one.headers),
                on_delivery=lambda error, _: failures.append(error) if error else None,
                **times,
            )
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []

    def read(self, topic: str, ends: Mapping[int, int], *, isolation: str = "read_committed") -> list[Read]:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # where the beginning is gone, what is left is not all
                "isolation.level": isolation,
                "enable.partition.eof": True,  # its position does not move past a marker, the end does
            }
        )
        reached = dict.fromkeys(ends, 0)
        try:
            consumer.assign([confluent.TopicPartition(topic, index, 0) for index in ends])
            rows: list[Read] = []
            deadline = time.monotonic() + TIMEOUT_S
            while any(reached[index] < end for index, end in ends.items()):
                assert time.monotonic() < deadline, f"{reached} of {ends}"
                for one in consumer.consume(1_000, 0.2):
                    if one.error() is not None and one.error().code() == confluent.KafkaError._PARTITION_EOF:
                        reached[one.partition()] = one.offset()
                    else:
                        rows.append(_confluent_row(one))
                        reached[one.partition()] = one.offset() + 1
            return rows
        finally:
            consumer.close()


def _confluent_row(one: Any) -> Read:
    assert one.error() is None, one.error()
    headers = tuple(one.headers() or ())
    return Read(one.partition(), one.offset(), one.key(), one.value(), headers, one.timestamp()[1])


class KafkaPython:
    may_time = True

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka

    def send(self, topic: str, records: Sequence[Record], *, acks: str = "all", codec: str = "none") -> None:
        settings = {} if acks == "all" else {"acks": int(acks), "enable_idempotence": False}
        producer = kafka_python.KafkaProducer(
            bootstrap_servers=self._kafka, compression_type=None if codec == "none" else codec, **settings
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=one.value,
                    key=one.key,
                    headers=list(one.headers),
                    partition=one.partition,
                    timestamp_ms=one.timestamp_ms,
                )
                for one in records
            ]
            for future in sent:
                future.get(timeout=TIMEOUT_S)
        finally:
            producer.close()

    def read(self, topic: str, ends: Mapping[int, int], *, isolation: str = "read_committed") -> list[Read]:
        consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=self._kafka, isolation_level=isolation, auto_offset_reset="earliest"
        )
        places = [kafka_python.TopicPartition(topic, index) for index in ends]
        try:
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            rows: list[Read] = []
            deadline = time.monotonic() + TIMEOUT_S
            while any(consumer.position(one) < ends[one.partition] for one in places):
                assert time.monotonic() < deadline, f"{len(rows)} of {ends}"
                rows += [
                    _plain_row(one)
                    for batch in consumer.poll(timeout_ms=200, max_records=1_000).values()
                    for one in batch
                ]
            return rows
        finally:
            consumer.close()


def _plain_row(one: Any) -> Read:
    return Read(one.partition, one.offset, one.key, one.value, tuple(one.headers), one.timestamp)


class Aio:
    may_time = True

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka

    def send(self, topic: str, records: Sequence[Record], *, acks: str = "all", codec: str = "none") -> None:
        asyncio.run(self._send(topic, records, acks if acks == "all" else int(acks), codec))

    async def _send(self, topic: str, records: Sequence[Record], acks: object, codec: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._kafka, acks=acks, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=one.value,
                    key=one.key,
                    partition=one.partition,
                    timestamp_ms=one.timestamp_ms,
                    headers=list(one.headers),
                )
                for one in records
            ]
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.gather(*sent)
        finally:
            await producer.stop()

    def read(self, topic: str, ends: Mapping[int, int], *, isolation: str = "read_committed") -> list[Read]:
        return asyncio.run(self._read(topic, ends, isolation))

    async def _read(self, topic: str, ends: Mapping[int, int], isolation: str) -> list[Read]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._kafka, isolation_level=isolation)
        await consumer.start()
        places = [AioPartition(topic, index) for index in ends]
        rows: list[Read] = []
        try:
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            async with asyncio.timeout(TIMEOUT_S):
                while any([await consumer.position(one) < ends[one.partition] for one in places]):
                    found = await consumer.getmany(timeout_ms=200)
                    rows += [_plain_row(one) for batch in found.values() for one in batch]
        finally:
            await consumer.stop()
        return rows


class Kcat:
    """It takes records from stdin, a line each; empty is null."""

    may_time = False

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka

    def send(self, topic: str, records: Sequence[Record], *, acks: str = "all", codec: str = "none") -> None:
        for (partition, headers), ones in groupby(records, lambda one: (one.partition, one.headers)):
            lines = b"".join((one.key or b"") + b"\t" + (one.value or b"") + b"\n" for one in ones)
            options = ["-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", "-X", f"acks={acks}"]
            for name, value in headers:
                options += ["-H", f"{name}={value.decode()}"]
            self._run(*options, *(() if codec == "none" else ("-z", codec)), given=lines)

    def read(self, topic: str, ends: Mapping[int, int], *, isolation: str = "read_committed") -> list[Read]:
        rows: list[Read] = []
        for index in ends:
            options = ["-C", "-t", topic, "-p", str(index), "-o", "beginning", "-e", "-J"]
            text = self._run(*options, "-X", f"isolation.level={isolation}")
            rows += [_kcat_row(json.loads(line)) for line in text.splitlines()]
        return rows

    def _run(self, *options: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", "-q", "-b", self._kafka, *options],
            input=given,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


def _kcat_row(one: dict[str, Any]) -> Read:
    key, value, listed = one["key"], one["payload"], one.get("headers", [])
    headers = tuple((listed[at], listed[at + 1].encode()) for at in range(0, len(listed), 2))
    return Read(
        one["partition"],
        one["offset"],
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        headers,
        one["ts"],
    )


CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
    "kcat": Kcat,
}
HAS_KCAT = shutil.which("kcat") is not None
WITHOUT_KCAT = "kcat is not installed (Debian: apt install kcat)"
NO_COMPLAINT = r" info |log is slow|disk slowly|the clock was set|disk is [\w ]+ used_percent"  # the machine, not a client


@contextmanager
def quiet_broker(folder: Path, **env: str) -> Iterator[Broker]:
    """A broker that must not complain about its clients, and that ends as it should. It keeps what has old timestamps."""
    with Broker(folder / "data", env={"GOQUEUE_TOPIC_DEFAULTS__RETENTION_MS": "-1"} | env) as running:
        yield running
        assert running.stop() == 0
        complaints = [
            line for line in running.stderr.text().splitlines() if not re.search(NO_COMPLAINT, line)
        ]
        assert not complaints, "\n".join(complaints)
        assert "connection closed" not in running.stderr.text()  # what a client sent made no sense


def new_name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def new_topic(broker: Broker, *, partitions: int = 1, **settings: str) -> str:
    """Settings are given as `segment_bytes="1024"`."""
    topic = new_name()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    ConfluentAdmin(broker.kafka).create(topic, partitions=partitions, settings=named)
    return topic


def until(is_so: Callable[[], bool], what: str, *, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def collect_sockets() -> None:
    """kafka-python leaves the sockets of failed connections to the garbage collector, which warns in whatever test runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
