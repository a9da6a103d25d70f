"""Queues, delays and dead letters on three real nodes, of which one is killed: each message is acknowledged, dead or available
as it should be, whoever leads."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka.admin
import pytest
from tests.support.kafka_clients import confluent, new_name
from tests.support.local_cluster import LocalCluster

admin: Any = confluent_kafka.admin
PATIENCE_S = 60.0
ACCEPT, REJECT = 1, 3
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder) as cluster:
        yield cluster


def test_share_consumers_go_on_when_a_leader_is_killed(cluster: LocalCluster) -> None:
    topic, group = new_name("t"), new_name("g")
    leaders = create(cluster, topic)
    configure(cluster, group, {"share.auto.offset.reset": "earliest", "max.retries": 50})
    due_ms = round(time.time() * 1_000) + 4_000
    plain = [f"{number}" for number in range(300)]
    delayed = [f"late {number}" for number in range(30)]
    publish(cluster, topic, plain)
    publish(cluster, topic, delayed, headers=[("gq-deliver-at", f"{due_ms}".encode())])
    dead = {text for text in plain if text.endswith("7")}
    got: Counter[str] = Counter()
    finished: set[str] = set()
    consumer = confluent.ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "log_level": 2,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    victim = leaders[0]
    is_killed = False
    deadline = time.monotonic() + 3 * PATIENCE_S
    while len(finished) < len(plain) + len(delayed):
        assert time.monotonic() < deadline, f"{len(finished)} are finished"
        batch = [one for one in consumer.poll(0.2) if one.error() is None]
        for one in batch:
            text = one.value().decode()
            assert text not in finished, f"{text} came again after it was finished"
            assert not text.startswith("late") or time.time() * 1_000 >= due_ms
            got[text] += 1
            consumer.acknowledge(one, REJECT if text in dead else ACCEPT)
        said = {(one.partition(), one.value().decode()) for one in batch}
        if said:
            finished |= settled(consumer, said)
        if not is_killed and len(finished) >= 100:
            cluster.kill9(victim)
            is_killed = True
    assert is_killed
    consumer.close()
    assert set(got) == {*plain, *delayed}
    assert Counter(read(cluster, topic)) == Counter([*plain, *delayed])
    letters = until(lambda: found if len(found := read(cluster, f"{topic}.dlq")) >= len(dead) else None)
    assert Counter(letters) == Counter(dead)
    cluster.restart(victim)


def test_leases_and_receipts_outlive_their_leader_and_a_deleted_group_is_forgotten_everywhere(
    cluster: LocalCluster,
) -> None:
    topic, group = new_name("t"), new_name("g")
    leaders = create(cluster, topic)
    texts = [f"{number}" for number in range(60)]
    publish(cluster, topic, texts)
    join = {"client_id": "anna", "member_id": "anna", "topics": [topic], "mode": "queue"}
    asked(cluster, "POST", f"/groups/{group}/join", join)
    held = poll(cluster, group, 30)
    victim = leaders[0]
    cluster.kill9(victim)
    rest = until(lambda: more if len(more := poll(cluster, group, 100, held=30)) >= 0 else None)
    assert not {value(one) for one in held} & {value(one) for one in rest}
    receipts = [one["receipt_handle"] for one in (*held, *rest)]
    acked = asked(cluster, "POST", "/messages/ack/batch", {"receipt_handles": receipts})
    assert [one for one in acked["results"] if "error" in one] == []
    assert Counter(value(one) for one in (*held, *rest)) == Counter(texts)
    asked(cluster, "POST", f"/groups/{group}/leave", {"member_id": "anna"})
    until(lambda: request(cluster, "DELETE", f"/groups/{group}")[0] < 300 or None)
    asked(cluster, "POST", f"/groups/{group}/join", join)
    again = poll(cluster, group, 60)
    assert Counter(value(one) for one in again) == Counter(texts)
    cluster.restart(victim)


# ---------------------------------------------------------------- pieces


def until(look: Callable[[], T | None]) -> T:
    """Again and again until there is something."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline
    return found


def create(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """With three partitions on all nodes; who leads them."""
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([admin.NewTopic(topic, 3, 3)])[topic].result(PATIENCE_S)

    def leaders() -> dict[int, int] | None:
        known = client.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        found = {index: one.leader for index, one in known.items()}
        is_whole = all(len(one.isrs) == 3 for one in known.values())
        return found if len(found) == 3 and is_whole and -1 not in found.values() else None

    return until(leaders)


def publish(
    cluster: LocalCluster, topic: str, texts: list[str], headers: list[tuple[str, bytes]] | None = None
) -> None:
    failures: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for at, text in enumerate(texts):
        producer.produce(
            topic,
            text.encode(),
            partition=at % 3,
            headers=headers or [],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def read(cluster: LocalCluster, topic: str) -> list[str]:
    """Everything that the topic has now; nothing where there is no such topic."""
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        consumer.assign([confluent.TopicPartition(topic, index, 0) for index in partitions])
        found: list[str] = []
        ended: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline
            for one in consumer.consume(500, 0.2):
                if one.error() is None:
                    found.append(one.value().decode())
                elif one.error().code() == confluent.KafkaError._PARTITION_EOF:
                    ended.add(one.partition())
        return found
    finally:
        consumer.close()


def settled(consumer: Any, said: set[tuple[int, str]]) -> set[str]:
    """What the leaders have taken of what was said."""
    results = consumer.commit_sync(PATIENCE_S) or {}
    taken = {place.partition for place, error in results.items() if error is None}
    return {text for index, text in said if index in taken}


def configure(cluster: LocalCluster, group: str, config: dict[str, object]) -> None:
    until(
        lambda: (
            any(
                request(cluster, "PATCH", f"/groups/{group}", {"config": config}, number)[0] == 200
                for number in cluster.nodes
            )
            or None
        )
    )


def poll(cluster: LocalCluster, group: str, count: int, *, held: int = 0) -> list[Any]:
    """So many messages, or as many as there are beyond those that are held."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < min(count, 60 - held):
        assert time.monotonic() < deadline, f"{len(found)} have come"
        query = f"member_id=anna&limit={count - len(found)}&timeout=2s&visibility=10m"
        status, body = request(cluster, "GET", f"/groups/{group}/poll?{query}")
        found += body["messages"] if status == 200 else []
    return found


def value(message: Any) -> str:
    return str(message["value"])


def asked(cluster: LocalCluster, method: str, path: str, body: object = None) -> Any:
    """Until some node has done it."""

    def ask() -> Any:
        status, answer = request(cluster, method, path, body)
        return answer if status < 300 else None

    return until(ask)


def request(
    cluster: LocalCluster, method: str, path: str, body: object = None, number: int | None = None
) -> tuple[int, Any]:
    """To a node that is up; status 0 if it is not."""
    for node in cluster.nodes.values() if number is None else [cluster.nodes[number]]:
        connection = HTTPConnection(node.url.removeprefix("http://"), timeout=PATIENCE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except OSError:
            continue
        finally:
            connection.close()
    return 0, None
