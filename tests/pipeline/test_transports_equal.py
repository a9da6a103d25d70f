"""The two transports give the same: bounds, times and rows, over the network and from the segment files of the same broker.

One broker is filled once by a client that nobody here wrote: every codec, transactions that committed, aborted and are still
open, compaction, deleted records, partitions without any. A copy of its folder is read as files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin
from tests.support.kafka_clients import TIMEOUT_S, Confluent, Read, Record, confluent
from tests.support.kafka_transactions import ConfluentTransactions
from tests.support.segment_folders import Row, all_rows, read_rows, whole

from goqueue.pipeline.connection import Connection
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.source.network import NetworkTransport
from goqueue.pipeline.span import Place, Span, Transport

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {"codecs": 3, "compacted": 1, "transactions": 2}
PLACES = [Place(topic, index) for topic, count in TOPICS.items() for index in range(count)]
BASE_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"segment.bytes": "20000", "index.interval.bytes": "1000", "retention.ms": "-1"}


class Filled(NamedTuple):
    broker: Broker
    network: NetworkTransport
    copy: Path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    root = tmp_path_factory.mktemp("transports")
    with Broker(root / "data", env={"GOQUEUE_LOG__CLEANUP_INTERVAL_MS": "100"}) as broker:
        admin = ConfluentAdmin(broker.kafka)
        for topic, count in TOPICS.items():
            admin.create(topic, partitions=count, settings=SMALL_SEGMENTS)
        _write_codecs(broker.kafka)
        delete_records(admin.client, "codecs", 2, 37)
        network = NetworkTransport(Connection(broker.kafka), fetch_bytes=50_000)
        _write_compacted(broker.kafka, admin, network)
        producers = _write_transactions(broker.kafka)
        shutil.copytree(root / "data", root / "copy", ignore=shutil.ignore_patterns("*.tmp"))
        yield Filled(broker, network, root / "copy")
        network.close()
        for producer in producers:
            producer.close()


def _records(seed: int, count: int, *, partition: int, keys: int = 20) -> list[Record]:
    random = Random(seed)
    return [
        Record(
            None if random.random() < 0.05 else random.randbytes(random.randrange(0, 200)),
            None if random.random() < 0.3 else b"key-%d" % random.randrange(keys),
            ((("h", random.randbytes(3)),) if random.random() < 0.2 else ()),
            BASE_MS + at * 10 + random.randrange(-40, 40),
            partition,
        )
        for at in range(count)
    ]


def _write_codecs(kafka: str) -> None:
    client = Confluent(kafka)
    for at, codec in enumerate(CODECS * 2):
        client.send("codecs", _records(at, 150, partition=0), codec=codec)
        client.send("codecs", _records(at + 50, 20, partition=2), codec=codec)


def delete_records(client: Any, topic: str, partition: int, offset: int) -> None:
    asked = client.delete_records([confluent.TopicPartition(topic, partition, offset)])
    for future in asked.values():
        future.result(TIMEOUT_S)


def _write_compacted(kafka: str, admin: ConfluentAdmin, network: NetworkTransport) -> None:
    client, place = Confluent(kafka), Place("compacted", 0)
    for seed in range(6):
        client.send("compacted", [one for one in _records(seed, 200, partition=0, keys=5) if one.key])
    before = all_rows(network, committed=True, place=place)
    admin.change("compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    deadline = time.monotonic() + TIMEOUT_S
    # Readers follow once all files of a pass are in place, and there is nothing new for another.
    while len(all_rows(network, committed=True, place=place)) > len(before) // 2:
        assert time.monotonic() < deadline, "the topic was never compacted"


def _write_transactions(kafka: str) -> list[ConfluentTransactions]:
    random = Random(7)
    client = Confluent(kafka)
    producers = [ConfluentTransactions(kafka, f"id-{at}", timeout_ms=600_000) for at in range(3)]
    for _ in range(12):
        for producer in producers:
            producer.begin()
        for at in range(random.randrange(1, 6)):
            producer = random.choice(producers)
            producer.send("transactions", random.randbytes(300), partition=at % 2)
            client.send("transactions", _records(at, 2, partition=at % 2), codec=random.choice(CODECS))
        for producer in random.sample(producers, 3):
            producer.abort() if random.random() < 0.5 else producer.commit()
    producers[0].begin()
    producers[0].send("transactions", b"open", partition=0)
    producers[1].begin()
    producers[1].send("transactions", b"aborted behind an open one", partition=0)
    producers[1].abort()
    client.send("transactions", _records(99, 5, partition=0))
    return producers


def facts(transport: Transport) -> dict[str, object]:
    """Everything that a transport says but for the rows."""
    times = [0, BASE_MS, BASE_MS + 5, BASE_MS + 700, BASE_MS + 1_490, BASE_MS + 10**6, 4 * 10**12]
    return {
        "topics": transport.topics(),
        "earliest": transport.earliest(PLACES),
        "latest": [transport.latest(PLACES, committed=committed) for committed in (True, False)],
        "times": [transport.at_time(PLACES, at) for at in times],
    }


def rows_of(transport: Transport) -> dict[tuple[Place, bool], list[Row]]:
    return {
        (place, committed): all_rows(transport, committed=committed, place=place)
        for place in PLACES
        for committed in (True, False)
    }


def test_bounds_and_times_are_the_same(filled: Filled) -> None:
    said = facts(filled.network)
    assert facts(FilesTransport(str(filled.copy))) == said
    assert said["topics"] == TOPICS


def test_rows_are_the_same_and_those_that_another_client_reads(filled: Filled) -> None:
    files = FilesTransport(str(filled.copy))
    rows = rows_of(filled.network)
    assert rows_of(files) == rows
    for (place, committed), found in rows.items():
        span = whole(files, committed=committed, place=place)
        isolation = "read_committed" if committed else "read_uncommitted"
        if span.size and span.start == 0:
            read = Confluent(filled.broker.kafka).read(
                place.topic, {place.partition: span.end}, isolation=isolation
            )
            assert found == [_row(one) for one in read if span.start <= one.offset < span.end]
    assert rows[Place("codecs", 2), True][0].offset == 37
    assert rows[Place("codecs", 1), True] == []
    transactional = Place("transactions", 0)
    assert len(rows[transactional, True]) < len(rows[transactional, False])


def _row(one: Read) -> Row:
    return Row(one.offset, one.timestamp_ms, one.key, one.value, one.headers)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_span_gives_the_same_rows(filled: Filled, data: st.DataObject) -> None:
    files = FilesTransport(str(filled.copy))
    committed = data.draw(st.booleans())
    bounds = whole(files, committed=committed, place=data.draw(st.sampled_from(PLACES)))
    start = data.draw(st.integers(bounds.start, bounds.end))
    span = Span(*bounds.place, start, data.draw(st.integers(start, bounds.end)))
    rows = read_rows(files, span, committed=committed)
    assert rows == read_rows(filled.network, span, committed=committed)


def test_a_running_brokers_own_folder_gives_what_its_checkpoints_cover(filled: Filled) -> None:
    files = FilesTransport(str(filled.broker.data_dir))
    for place in PLACES:
        covered = whole(files, committed=True, place=place)
        assert covered.end <= filled.network.latest([place], committed=True)[place]
        rows = read_rows(files, covered, committed=True)
        assert rows == read_rows(filled.network, covered, committed=True)


def test_folder_of_a_killed_and_of_a_stopped_broker_give_the_same(filled: Filled, tmp_path: Path) -> None:
    shutil.copytree(filled.copy, tmp_path / "data")
    with Broker(tmp_path / "data") as broker:
        network = NetworkTransport(Connection(broker.kafka), fetch_bytes=50_000)
        Confluent(broker.kafka).send("codecs", _records(1_000, 40, partition=1), codec="zstd")
        said, rows = facts(network), rows_of(network)
        network.close()
        broker.kill9()
    files = FilesTransport(str(tmp_path / "data"))
    assert (facts(files), rows_of(files)) == (said, rows)
    with Broker(tmp_path / "data") as broker:
        assert broker.stop() == 0
    assert (facts(files), rows_of(files)) == (said, rows)
