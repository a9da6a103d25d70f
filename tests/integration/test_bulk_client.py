"""The blocking bulk client against a real broker: it reads what stock clients read, writes what they read back, and bears it when
the broker is killed in the middle of either."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.kafka_admins import ConfluentAdmin
from tests.support.kafka_clients import (
    TIMEOUT_S,
    Confluent,
    Read,
    Record,
    collect_sockets,
    confluent,
    new_topic,
    until,
)
from tests.support.kafka_transactions import ConfluentTransactions

from goqueue.client.kafka import (
    EARLIEST,
    LATEST,
    AlreadyCommitted,
    BatchSender,
    Enrolled,
    Fetched,
    KafkaCluster,
    KafkaError,
    OffsetOutOfRange,
    ProducerIdentity,
    Unreachable,
)
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, BatchHeader, build_batch, decode_batch, read_header
from goqueue.log.compression import Codec
from goqueue.model.record import NewRecord, Producer

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # of stock clients: see collect_sockets
# Compaction comes soon, and no record is too old: the tests give them times of their own.
SETTINGS = {"GOQUEUE_LOG__CLEANUP_INTERVAL_MS": "100", "GOQUEUE_TOPIC_DEFAULTS__RETENTION_MS": "-1"}
BYTES_MAX_SMALL = 20_000
NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _sockets_are_collected() -> Iterator[None]:
    yield
    collect_sockets()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("bulk"), env=SETTINGS) as broker:
        yield broker


@pytest.fixture
def cluster(served: Broker) -> Iterator[KafkaCluster]:
    with KafkaCluster(served.kafka, timeout_s=TIMEOUT_S) as cluster:
        yield cluster


def batches_of(chunk: Fetched) -> Iterator[tuple[BatchHeader, bytes]]:
    at = 0
    while at < len(chunk.data):
        header = read_header(chunk.data, at)
        yield header, bytes(chunk.data[at : at + header.size])
        at += header.size


def rows_of(chunks: Iterator[Fetched], start: int, end: int) -> list[Read]:
    """As any consumer: without markers and without what was aborted."""
    rows: list[Read] = []
    aborted: set[int] = set()
    for chunk in chunks:
        firsts = sorted(chunk.aborted, key=lambda one: one[1], reverse=True)
        for header, batch in batches_of(chunk):
            while firsts and firsts[-1][1] <= header.last_offset:
                aborted.add(firsts.pop()[0])
            if header.is_control:
                aborted.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborted:
                continue
            for one in decode_batch(batch, header):
                if start <= one.offset < end:
                    headers = tuple((name, value or b"") for name, value in one.headers)
                    rows.append(Read(0, one.offset, one.key, one.value, headers, one.timestamp_ms))
    return rows


def read_all(
    cluster: KafkaCluster, topic: str, *, committed: bool = True, bytes_max: int = BYTES_MAX_SMALL
) -> list[Read]:
    (end,) = cluster.offsets([(topic, 0)], LATEST, committed=committed).values()
    return rows_of(cluster.fetch(topic, 0, 0, end, committed=committed, bytes_max=bytes_max), 0, end)


def values_of(rows: Sequence[Read]) -> list[bytes | None]:
    return [row.value for row in rows]


def random_records(seed: int, count: int) -> list[Record]:
    chance = random.Random(seed)
    return [
        Record(
            value=None if chance.random() < 0.05 else chance.randbytes(chance.choice([0, 5, 300, 3_000])),
            key=None if chance.random() < 0.3 else chance.randbytes(chance.randrange(20)),
            headers=tuple((f"h{at}", chance.randbytes(at)) for at in range(chance.choice([0, 0, 1, 3]))),
            timestamp_ms=1_700_000_000_000 + at,
        )
        for at in range(count)
    ]


class Writer:
    """Encodes numbers as batches of an idempotent or transactional producer."""

    def __init__(self, sender: BatchSender, producer: ProducerIdentity | None, attributes: int = 0) -> None:
        self._sender = sender
        self._producer = producer
        self._attributes = attributes

    def write(
        self, topic: str, values: Sequence[bytes], *, partition: int = 0, codec: Codec = Codec.NONE
    ) -> None:
        stamp = None
        if self._producer is not None:
            stamp = Producer(*self._producer, self._sender.sequence(topic, partition))
        records = [NewRecord(None, value) for value in values]
        batch = build_batch(records, 7, producer=stamp, codec=codec, attributes=self._attributes)
        self._sender.send(topic, partition, batch)


def restart_on(path: Path, kafka: str, started: list[Broker]) -> threading.Thread:
    thread = threading.Thread(target=lambda: started.append(Broker(path, env=SETTINGS, kafka=kafka)))
    thread.start()
    return thread


# -------------------------------------------------------------------- reading


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_fetch_gives_what_a_stock_client_reads(served: Broker, cluster: KafkaCluster, codec: str) -> None:
    topic = new_topic(served)
    for seed in range(3):
        Confluent(served.kafka).send(topic, random_records(seed, 200), codec=codec)
    expected = Confluent(served.kafka).read(topic, {0: 600})
    assert len(expected) == 600
    for bytes_max in (1, 5_000, 1 << 23):
        assert read_all(cluster, topic, bytes_max=bytes_max) == expected


def test_committed_fetch_leaves_out_what_was_aborted_and_the_other_one_does_not(
    served: Broker, cluster: KafkaCluster
) -> None:
    topic = new_topic(served)
    chance = random.Random(5)
    writers = [ConfluentTransactions(served.kafka, f"{topic}-{at}") for at in range(3)]
    for turn in range(6):
        for writer in writers:
            writer.begin()
        for at in range(9):
            chance.choice(writers).send(topic, b"%d-%d" % (turn, at))
        for writer in writers:
            chance.choice([writer.commit, writer.abort])()
    for writer in writers:
        writer.close()
    (end,) = cluster.offsets([(topic, 0)], LATEST, committed=False).values()
    stock = Confluent(served.kafka)
    expected = stock.read(topic, {0: end}, isolation="read_committed")
    everything = stock.read(topic, {0: end}, isolation="read_uncommitted")
    assert 0 < len(expected) < len(everything) == 54
    assert read_all(cluster, topic, bytes_max=1) == expected
    assert read_all(cluster, topic) == expected
    assert read_all(cluster, topic, committed=False) == everything


def test_committed_reader_stops_at_the_open_transaction(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    Confluent(served.kafka).send(topic, [Record(b"before")])
    writer = ConfluentTransactions(served.kafka, topic)
    writer.begin()
    writer.send(topic, b"open")
    place = (topic, 0)
    assert cluster.offsets([place], LATEST, committed=True) == {place: 1}
    assert cluster.offsets([place], LATEST, committed=False) == {place: 2}
    with KafkaCluster(served.kafka, timeout_s=TIMEOUT_S) as hasty:
        hasty.brokers.timeout_s = (
            0.3  # without anything new; what it asks for first may take as long as it likes
        )
        chunks = hasty.fetch(topic, 0, 0, 2, committed=True)
        assert len(list(batches_of(next(chunks)))) == 1
        with pytest.raises(KafkaError, match=rf"{topic}-0 from offset 1.*watermark 2, last stable offset 1"):
            next(chunks)
    writer.abort()
    assert read_all(cluster, topic) == Confluent(served.kafka).read(topic, {0: 3})
    writer.close()


def test_compacted_log_is_read_to_its_end(served: Broker, cluster: KafkaCluster) -> None:
    topic = f"compacted-{next(NAMES)}"
    settings = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0"}
    cluster.create_topic(topic, 1, settings)
    stock = Confluent(served.kafka)
    for turn in range(5):
        stock.send(topic, [Record(b"%d" % turn * 50, key=b"%d" % at) for at in range(40)])
    until(lambda: len(read_all(cluster, topic)) < 150, "the log is compacted")
    (end,) = cluster.offsets([(topic, 0)], LATEST, committed=True).values()
    assert end == 200

    def is_same() -> bool:  # compaction may go on between two looks
        return (
            read_all(cluster, topic, bytes_max=1) == stock.read(topic, {0: 200}) == read_all(cluster, topic)
        )

    until(is_same, "both read the same")


def test_span_may_begin_and_end_in_the_middle_of_a_batch(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    with BatchSender(cluster) as sender:
        for first in range(0, 100, 10):
            Writer(sender, None).write(topic, [b"%d" % at for at in range(first, first + 10)])
    rows = rows_of(cluster.fetch(topic, 0, 25, 47, committed=True, bytes_max=1), 25, 47)
    assert values_of(rows) == [b"%d" % at for at in range(25, 47)]
    first_offsets = [
        header.base_offset
        for chunk in cluster.fetch(topic, 0, 25, 47, committed=True, bytes_max=1)
        for header, _ in batches_of(chunk)
    ]
    assert first_offsets == [20, 30, 40]
    assert list(cluster.fetch(topic, 0, 30, 30, committed=True)) == []


def test_batch_that_is_larger_than_what_is_asked_for_comes_whole(
    served: Broker, cluster: KafkaCluster
) -> None:
    topic = new_topic(served)
    large = random.Random(1).randbytes(900_000)
    with BatchSender(cluster) as sender:
        for value in (b"small", large, b"small"):
            Writer(sender, None).write(topic, [value])
    assert values_of(read_all(cluster, topic, bytes_max=1_000)) == [b"small", large, b"small"]


def test_fetch_waits_for_what_is_not_there_yet(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    chunks = cluster.fetch(topic, 0, 0, 2, committed=True)
    late = threading.Thread(target=Confluent(served.kafka).send, args=(topic, [Record(b"a"), Record(b"b")]))
    late.start()
    assert values_of(rows_of(chunks, 0, 2)) == [b"a", b"b"]
    late.join()


def test_range_that_is_gone_is_named(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    Confluent(served.kafka).send(topic, [Record(b"%d" % at) for at in range(10)])
    admin = ConfluentAdmin(served.kafka)
    for future in admin.client.delete_records([confluent.TopicPartition(topic, 0, 6)]).values():
        future.result(TIMEOUT_S)
    assert cluster.offsets([(topic, 0)], EARLIEST, committed=True) == {(topic, 0): 6}
    with pytest.raises(OffsetOutOfRange) as caught:
        next(cluster.fetch(topic, 0, 2, 10, committed=True))
    error = caught.value
    assert (error.place, error.offset, error.log_start, error.high_watermark) == ((topic, 0), 2, 6, 10)
    with pytest.raises(OffsetOutOfRange, match="no offset 11"):
        next(cluster.fetch(topic, 0, 11, 12, committed=True))


def test_unknown_topics_and_partitions_are_named_soon(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    with pytest.raises(KafkaError, match="topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"):
        next(cluster.fetch("nowhere", 0, 0, 1, committed=True))
    with pytest.raises(KafkaError, match=f"partition 7 of {topic}.*it has 1 partitions"):
        cluster.offsets([(topic, 0), (topic, 7)], LATEST, committed=True)
    with pytest.raises(KafkaError, match="topic nowhere"), BatchSender(cluster) as sender:
        Writer(sender, None).write("nowhere", [b"x"])
    assert "nowhere" not in cluster.topics()


def test_reader_that_is_left_does_not_disturb_others(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    with BatchSender(cluster) as sender:
        for at in range(20):
            Writer(sender, None).write(topic, [b"%d" % at])
    left = cluster.fetch(topic, 0, 0, 20, committed=True, bytes_max=1)
    next(left)
    other = cluster.fetch(topic, 0, 0, 20, committed=True, bytes_max=1)
    next(other)
    assert cluster.offsets([(topic, 0)], LATEST, committed=True) == {(topic, 0): 20}
    assert len(read_all(cluster, topic, bytes_max=1)) == 20
    left.close()  # type: ignore[attr-defined]  # generators have it, iterators need not
    assert values_of(rows_of(other, 1, 20)) == [b"%d" % at for at in range(1, 20)]


# -------------------------------------------------------------------- writing


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("acks", ["all", "leader"])
def test_stock_client_reads_what_was_sent(
    served: Broker, cluster: KafkaCluster, codec: Codec, acks: str
) -> None:
    topic = new_topic(served, partitions=3)
    producer = cluster.init_producer() if acks == "all" else None
    with BatchSender(cluster, producer, acks=acks) as sender:
        for at in range(30):
            values = [b"%d-%d" % (at, index) for index in range(50)]
            Writer(sender, producer).write(topic, values, partition=at % 3, codec=codec)
    rows = Confluent(served.kafka).read(topic, dict.fromkeys(range(3), 500))
    for partition in range(3):
        mine = [row.value for row in rows if row.partition == partition]
        assert mine == [b"%d-%d" % (at, index) for at in range(partition, 30, 3) for index in range(50)]


def test_what_nobody_answers_for_arrives(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    with BatchSender(cluster, acks="none") as sender:
        for at in range(20):
            Writer(sender, None).write(topic, [b"%d" % at])
    rows = rows_of(cluster.fetch(topic, 0, 0, 20, committed=True), 0, 20)
    assert values_of(rows) == [b"%d" % at for at in range(20)]


def test_more_than_may_be_unanswered_is_sent(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served, partitions=2)
    value = random.Random(2).randbytes(800_000)
    producer = cluster.init_producer()
    with BatchSender(cluster, producer) as sender:
        for at in range(60):
            Writer(sender, producer).write(topic, [value], partition=at % 2)
    places = [(topic, 0), (topic, 1)]
    assert cluster.offsets(places, LATEST, committed=True) == dict.fromkeys(places, 30)


def test_refused_batch_names_its_place_and_the_broker_s_reason(served: Broker, cluster: KafkaCluster) -> None:
    topic = f"narrow-{next(NAMES)}"
    cluster.create_topic(topic, 1, {"max.message.bytes": "2000"})
    sender = BatchSender(cluster)
    Writer(sender, None).write(topic, [b"x" * 5_000])
    with pytest.raises(KafkaError, match=f"producing to {topic}-0: MESSAGE_TOO_LARGE: .*2000") as caught:
        sender.flush()
    assert not caught.value.is_retriable
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        Writer(sender, None).write(topic, [b"fits"])
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        sender.flush()
    sender.close()


def test_fenced_producer_is_told(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    old = cluster.init_producer(topic)
    new = cluster.init_producer(topic)
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    sender = BatchSender(cluster, old, topic)
    Writer(sender, old, ATTRIBUTE_TRANSACTIONAL).write(topic, [b"x"])
    with pytest.raises(KafkaError, match=f"producing to {topic}-0: INVALID_PRODUCER_EPOCH"):
        sender.flush()
    sender.close()
    assert cluster.offsets([(topic, 0)], LATEST, committed=False) == {(topic, 0): 0}


# -------------------------------------------------------------------- joint transactions


def enrolled(cluster: KafkaCluster, joint: str, batch: int, member: str) -> Enrolled:
    one = cluster.enrol(joint, batch, member, 60_000)
    assert isinstance(one, Enrolled)
    return one


def test_winners_of_a_joint_count_and_nobody_else(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served, partitions=2)
    joint = f"query-{next(NAMES)}"
    members = [enrolled(cluster, joint, 0, f"task-{at}") for at in range(3)]
    for at, member in enumerate(members):
        with BatchSender(cluster, member.producer, member.transactional_id) as sender:
            writer = Writer(sender, member.producer, ATTRIBUTE_TRANSACTIONAL)
            for partition in range(2):
                writer.write(topic, [b"%d" % at], partition=partition)
    assert cluster.commit_joint(joint, 0, members[:2]) == "committed"
    assert cluster.commit_joint(joint, 0, members[:2]) == "already committed"
    assert cluster.enrol(joint, 0, "task-9", 60_000) == AlreadyCommitted()
    cluster.abort_joint(joint, 0)
    places = [(topic, 0), (topic, 1)]
    ends = cluster.offsets(places, LATEST, committed=False)
    until(lambda: cluster.offsets(places, LATEST, committed=True) == ends, "all markers are written")
    assert values_of(read_all(cluster, topic)) == [b"0", b"1"]


def test_joint_that_is_aborted_leaves_nothing(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    joint = f"query-{next(NAMES)}"
    member = enrolled(cluster, joint, 4, "task")
    with BatchSender(cluster, member.producer, member.transactional_id) as sender:
        Writer(sender, member.producer, ATTRIBUTE_TRANSACTIONAL).write(topic, [b"x"])
    cluster.abort_joint(joint, 4)
    until(lambda: cluster.offsets([(topic, 0)], LATEST, committed=True) == {(topic, 0): 2}, "it is aborted")
    assert read_all(cluster, topic) == []
    with pytest.raises(KafkaError, match=r"committing batch 4 of 'query-\d+' .*TRANSACTION_ABORTABLE"):
        cluster.commit_joint(joint, 4, [member])


# -------------------------------------------------------------------- offsets, groups, topics


def test_offsets_by_time(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served)
    Confluent(served.kafka).send(topic, [Record(b"x", timestamp_ms=1_000 + 10 * at) for at in range(5)])
    place = (topic, 0)
    assert cluster.offsets([place], 1_015, committed=True) == {place: 2}
    assert cluster.offsets([place], 0, committed=True) == {place: 0}
    assert cluster.offsets([place], 9_000, committed=True) == {place: -1}
    with pytest.raises(ValueError, match="-7 is neither"):
        cluster.offsets([place], -7, committed=True)


def test_offsets_of_many_partitions_come_at_once(served: Broker, cluster: KafkaCluster) -> None:
    topic = f"wide-{next(NAMES)}"
    cluster.create_topic(topic, 400)
    Confluent(served.kafka).send(topic, [Record(b"x", partition=at) for at in range(0, 400, 7)])
    places = [(topic, at) for at in range(400)]
    found = cluster.offsets(places, LATEST, committed=True)
    assert found == {(topic, at): 1 if at % 7 == 0 else 0 for at in range(400)}
    assert list(found) == places


def test_group_offsets_are_those_that_stock_clients_see(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served, partitions=2)
    group = f"lag-{next(NAMES)}"
    Confluent(served.kafka).send(topic, [Record(b"x", partition=at % 2) for at in range(8)])
    assert cluster.group_offsets(group) == {}
    cluster.commit_group(group, {(topic, 0): 3, (topic, 1): 4})
    cluster.commit_group(group, {(topic, 0): 2})
    cluster.commit_group(group, {})
    assert cluster.group_offsets(group) == {(topic, 0): 2, (topic, 1): 4}
    consumer = confluent.Consumer({"bootstrap.servers": served.kafka, "group.id": group})
    seen = consumer.committed([confluent.TopicPartition(topic, at) for at in range(2)], timeout=TIMEOUT_S)
    assert [one.offset for one in seen] == [2, 4]
    consumer.close()
    with pytest.raises(KafkaError, match="committing nowhere-0 for group"):
        cluster.commit_group(group, {("nowhere", 0): 1})


def test_topics_are_listed_without_the_broker_s_own(served: Broker, cluster: KafkaCluster) -> None:
    topic = new_topic(served, partitions=3)
    cluster.commit_group("somebody", {(topic, 0): 0})
    names = cluster.topics()
    assert names[topic] == 3
    assert not [name for name in names if name.startswith("__")]
    assert list(names) == sorted(names)


def test_settings_of_a_topic_are_its_own_and_the_defaults(cluster: KafkaCluster) -> None:
    topic = f"set-{next(NAMES)}"
    cluster.create_topic(topic, 2, {"partitioner": "murmur2", "retention.ms": "5000"})
    settings = cluster.topic_settings(topic)
    assert settings["partitioner"] == "murmur2"
    assert settings["retention.ms"] == "5000"
    assert settings["cleanup.policy"] == "delete"
    assert cluster.topic_overrides(topic) == {"partitioner": "murmur2", "retention.ms": "5000"}
    with pytest.raises(KafkaError, match=f"creating topic {topic}: TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(topic, 2)
    with pytest.raises(KafkaError, match=r"INVALID_CONFIG.*no\.such"):
        cluster.create_topic(f"{topic}-other", 2, {"no.such": "1"})
    with pytest.raises(KafkaError, match="settings of topic nowhere: UNKNOWN_TOPIC"):
        cluster.topic_settings("nowhere")


# -------------------------------------------------------------------- when the broker dies


def test_fetch_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    started: list[Broker] = []
    with Broker(tmp_path, env=SETTINGS) as first, KafkaCluster(first.kafka, timeout_s=TIMEOUT_S) as cluster:
        topic = new_topic(first)
        producer = cluster.init_producer()
        with BatchSender(cluster, producer) as sender:
            for at in range(300):
                values = [b"%d" % number for number in range(at * 10, at * 10 + 10)]
                Writer(sender, producer).write(topic, values)
        whole = b"".join(bytes(chunk.data) for chunk in cluster.fetch(topic, 0, 0, 3_000, committed=True))
        chunks = cluster.fetch(topic, 0, 0, 3_000, committed=True, bytes_max=5_000)
        seen = [bytes(chunk.data) for chunk in itertools.islice(chunks, 3)]
        first.kill9()
        thread = restart_on(tmp_path, first.kafka, started)
        try:
            seen += [bytes(chunk.data) for chunk in chunks]
        finally:
            thread.join()
            for broker in started:
                broker.kill9()
    assert b"".join(seen) == whole


def test_each_batch_is_stored_once_though_the_broker_is_killed(tmp_path: Path) -> None:
    """Of an idempotent producer in two partitions, and of a member of a joint in a third."""
    started: list[Broker] = []
    with Broker(tmp_path, env=SETTINGS) as first, KafkaCluster(first.kafka, timeout_s=TIMEOUT_S) as cluster:
        topic = new_topic(first, partitions=3)
        producer = cluster.init_producer()
        member = enrolled(cluster, "query", 0, "task")
        brokers = [first]
        padding = random.Random(3).randbytes(30_000)
        thread: threading.Thread | None = None
        with (
            BatchSender(cluster, producer) as sender,
            BatchSender(cluster, member.producer, member.transactional_id) as joint_sender,
        ):
            plain = Writer(sender, producer)
            joint = Writer(joint_sender, member.producer, ATTRIBUTE_TRANSACTIONAL)
            for at in range(400):
                plain.write(topic, [b"%d:" % at + padding] * 3, partition=at % 2)
                joint.write(topic, [b"%d:" % at + padding], partition=2)
                if at in (120, 300):  # several requests are under way
                    if thread is not None:
                        thread.join()
                        brokers += started
                        started.clear()
                    brokers[-1].kill9()
                    thread = restart_on(tmp_path, first.kafka, started)
        assert thread is not None
        thread.join()
        try:
            assert cluster.commit_joint("query", 0, [member]) == "committed"
            places = [(topic, at) for at in range(3)]
            ends = cluster.offsets(places, LATEST, committed=False)
            until(lambda: cluster.offsets(places, LATEST, committed=True) == ends, "the marker is written")
            rows = Confluent(first.kafka).read(topic, {at: ends[topic, at] for at in range(3)})
        finally:
            for broker in [*brokers, *started]:
                broker.kill9()
    assert list(ends.values()) == [600, 600, 401]  # with its marker
    numbers: list[list[int]] = [[], [], []]
    for row in rows:
        numbers[row.partition].append(int((row.value or b"").split(b":")[0]))
    assert numbers[2] == list(range(400))
    for partition in range(2):
        assert numbers[partition] == [at for at in range(partition, 400, 2) for _ in range(3)]


def test_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            KafkaCluster(address, timeout_s=0.2) as cluster,
            pytest.raises(Unreachable, match=address) as caught,
        ):
            cluster.topics()
    assert "refused" in str(caught.value)
    assert "tried for" in str(caught.value)
