"""A topic with `scaling=keyed` gets more partitions and fewer while stock clients write and read and a node is killed: what was
acknowledged is read, every group reads each key in order, and nobody meets an error.

librdkafka never believes that a topic has fewer partitions than it had, so its producers end before those that go are gone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.support.cluster_rest import Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

TIMEOUT_S = 150.0
KEY_COUNT = 20  # of each producer
NODES = (1, 2, 3)
Record = tuple[str, int]  # its key and its number among the records of the key

PAUSE_S = 0.2  # between the records of a key

# How a topic hashes keys, and how producers do: as Kafka's Java clients, and as librdkafka if it is told nothing.
PARTITIONERS = {"murmur2": "murmur2_random", "crc32": "consistent_random"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("keyed")
    with LocalCluster(folder) as cluster:
        yield cluster


@pytest.fixture
def rest(cluster: LocalCluster) -> Rest:
    return Rest(cluster)


class Writer:
    """An idempotent producer that numbers the records of each of its keys, and goes on until it is told to stop."""

    def __init__(self, cluster: LocalCluster, topic: str, name: str, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._name = name
        self._producer: Any = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                **settings,
            }
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: set[Record] = set()
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        for number in itertools.count():
            for at in range(KEY_COUNT):
                record = f"{self._name}-{at}", number
                self._producer.produce(
                    self._topic,
                    key=record[0],
                    value=str(number),
                    on_delivery=lambda error, _, record=record: self._delivered(error, record),
                )
            self._producer.poll(0)
            if self._ending.wait(PAUSE_S):
                break
        assert self._producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: KafkaError | None, record: Record) -> None:
        if error is None:
            self.acked.add(record)
        else:
            self.failures.append(f"{record} is not written: {error}")


class Group:
    """Members that process records one by one and commit what they have processed, as applications do."""

    def __init__(self, cluster: LocalCluster, topic: str, protocol: str, member_count: int = 2) -> None:
        self._cluster = cluster
        self._topic = topic
        self._protocol = protocol
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(member_count)]
        self._newest: dict[str, int] = {}
        self.processed: set[Record] = set()
        self.places: dict[Record, list[tuple[int, int]]] = {}  # partition and offset of each time
        self.violations: list[str] = []
        self.failures: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _run(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": f"{self._protocol} readers of {self._topic}",
            "group.protocol": self._protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 400,
        }
        if self._protocol == "classic":
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
        consumer: Any = Consumer(settings)
        consumer.subscribe([self._topic])
        while not self._ending.is_set():
            for message in consumer.consume(100, 0.2):
                if message.error() is not None:
                    self.failures.append(f"not read: {message.error()}")
                    continue
                self._process(message)
                try:
                    consumer.store_offsets(message)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._STATE:  # the partition is another member's by now
                        raise
        consumer.close()

    def _process(self, message: Any) -> None:
        record = message.key().decode(), int(message.value())
        place = message.partition(), message.offset()
        with self._lock:
            self.places.setdefault(record, []).append(place)
            if record in self.processed:
                return
            key, number = record
            if number < self._newest.get(key, -1):
                newest = key, self._newest[key]
                self.violations.append(f"{record} {self.places[record]} after {newest} {self.places[newest]}")
            self.processed.add(record)
            self._newest[key] = max(number, self._newest.get(key, -1))


class Load:
    """Producers that hear of new partitions at once, or only when a broker tells them to ask; a group of each protocol."""

    def __init__(self, cluster: LocalCluster, topic: str, partitioner: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitioner = partitioner
        self.writers = self._new_writers("first")
        self.groups = [Group(cluster, topic, protocol) for protocol in ("classic", "consumer")]

    def __enter__(self) -> Self:
        for group in self.groups:
            group.start()
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.end()
        for group in self.groups:
            group.end()

    def _new_writers(self, name: str) -> list[Writer]:
        kinds: dict[str, dict[str, Any]] = {"quick": {"topic.metadata.refresh.interval.ms": 500}, "stale": {}}
        return [
            Writer(
                self._cluster,
                self._topic,
                f"{name}-{kind}",
                {"partitioner": self._partitioner, **settings},
            )
            for kind, settings in kinds.items()
        ]

    def end_writers(self) -> None:
        for writer in self.writers:
            writer.end()

    def write_anew(self) -> None:
        """Others with other keys."""
        new = self._new_writers("second")
        self.writers += new
        for writer in new:
            writer.start()

    @property
    def acked(self) -> set[Record]:
        return set().union(*(writer.acked for writer in self.writers))

    def goes_on(self, count: int = 100) -> None:
        """Everybody writes and reads so many more than until now."""
        done = [*(writer.acked for writer in self.writers[-2:]), *(group.processed for group in self.groups)]
        wanted = [len(one) + count for one in done]
        until(
            lambda: all(len(one) >= then for one, then in zip(done, wanted, strict=True)),
            "the load goes on",
            timeout_s=TIMEOUT_S,
        )

    def finish(self) -> None:
        """No more is written; back when the groups have read everything."""
        self.end_writers()
        acked = self.acked
        until(
            lambda: all(acked <= group.processed for group in self.groups),
            "the groups have read everything",
            timeout_s=TIMEOUT_S,
        )

    def check(self) -> None:
        assert [failure for writer in self.writers for failure in writer.failures] == []
        assert [failure for group in self.groups for failure in group.failures] == []
        assert [violation for group in self.groups for violation in group.violations] == []


def scale(rest: Rest, topic: str, count: int, **more: Any) -> None:
    """Begin to. Whoever is asked may not know whether it has begun, and a busy machine may take a node for dead just then."""
    path, body = f"/admin/topics/{topic}/partitions", {"count": count, **more}

    def has_begun() -> bool:
        said = rest.eventually(NODES, "POST", path, body)
        keyed = status_of(rest, topic)["keyed"]
        if keyed["key_count"] == count and keyed["discard_read"] >= more.get("discard_read", False):
            return True
        assert said.status == 200 or said.body["code"] == "INVALID_REPLICATION_FACTOR", said
        return False

    until(has_begun, f"{topic} is to have {count} partitions", timeout_s=TIMEOUT_S)


def until_everybody_knows(cluster: LocalCluster, topic: str, count: int) -> None:
    """How many partitions there are. librdkafka that was told more by one node never believes another that there are fewer."""

    def is_known() -> bool:
        admins = [AdminClient({"bootstrap.servers": node.kafka}) for node in cluster.nodes.values()]
        topics = [admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic] for admin in admins]
        return all(len(one.partitions) == count for one in topics)

    until(is_known, f"every node knows {count} partitions of {topic}", timeout_s=TIMEOUT_S)


def until_stage(rest: Rest, topic: str, stage: str, count: int) -> None:
    """Until it is there, with so many partitions."""

    def is_there() -> bool:
        status = status_of(rest, topic)
        return bool(status["keyed"]["stage"] == stage and status["partitions"] == count)

    try:
        until(is_there, f"{topic} is {stage} with {count} partitions", timeout_s=TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {status_of(rest, topic)}") from None


def status_of(rest: Rest, topic: str) -> Any:
    return rest.eventually(NODES, "GET", f"/admin/topics/{topic}/partitions/scaling-status").body


@pytest.mark.timeout(900)
@pytest.mark.parametrize("hashing", list(PARTITIONERS))
def test_every_key_keeps_its_order_while_partitions_come_and_go(
    cluster: LocalCluster, rest: Rest, hashing: str
) -> None:
    topic = f"keyed-{hashing}"
    config = {"scaling": "keyed", "partitioner": hashing}
    rest.post(1, "/topics", {"name": topic, "num_partitions": 3, "config": config}, status=201)
    with Load(cluster, topic, PARTITIONERS[hashing]) as load:
        load.goes_on()
        scale(rest, topic, 6)
        load.goes_on()
        until_stage(rest, topic, "steady", 6)
        victim = rest.leaders(1, topic)[4]
        scale(rest, topic, 12)
        cluster.kill9(victim)
        load.goes_on()
        cluster.restart(victim)
        until_stage(rest, topic, "steady", 12)
        load.goes_on()
        scale(rest, topic, 6)
        load.goes_on()
        until_stage(rest, topic, "draining", 12)
        load.goes_on()
        load.end_writers()
        scale(rest, topic, 6, discard_read=True)
        until_stage(rest, topic, "steady", 6)
        until_everybody_knows(cluster, topic, 6)
        load.write_anew()
        load.goes_on()
        load.finish()
        load.check()
    waived = [node for node, one in cluster.nodes.items() if "commits nothing" in one.stderr.text()]
    assert waived == [], "groups that commit are waited for"
