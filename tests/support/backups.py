"""What a broker holds, for comparing it with what a restored one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Read
from tests.support.rest_queue import call

from goqueue.client.kafka import LATEST, KafkaCluster

T = TypeVar("T")
R = TypeVar("R")


def here(work: Callable[[T], R], items: Sequence[T], /) -> list[R]:
    """Tasks one after another in this process."""
    return [work(item) for item in items]


class Held(NamedTuple):
    """Rows by topic and isolation, settings by topic, offsets by group, messages that wait by topic."""

    rows: dict[tuple[str, str], list[Read]]
    settings: dict[str, dict[str, str]]
    offsets: dict[str, Any]
    delayed: dict[str, Any]


def held_by(broker: Broker, groups: Sequence[str]) -> Held:
    with KafkaCluster(broker.kafka) as cluster:
        counts = cluster.topics()
        settings = {topic: cluster.topic_settings(topic) for topic in counts}
        rows = {
            (topic, isolation): _rows(cluster, broker, topic, count, isolation)
            for topic, count in counts.items()
            for isolation in ("read_committed", "read_uncommitted")
        }
    offsets = {group: call(broker, "GET", f"/groups/{group}/offsets").body for group in groups}
    return Held(rows, settings, offsets, {topic: _delayed(broker, topic) for topic in counts})


def ends_of(cluster: KafkaCluster, topic: str, count: int, *, committed: bool) -> dict[int, int]:
    places = [(topic, index) for index in range(count)]
    found = cluster.offsets(places, LATEST, committed=committed)
    return {partition: end for (_, partition), end in found.items()}


def _rows(cluster: KafkaCluster, broker: Broker, topic: str, count: int, isolation: str) -> list[Read]:
    ends = ends_of(cluster, topic, count, committed=isolation == "read_committed")
    return sorted(Confluent(broker.kafka).read(topic, ends, isolation=isolation), key=lambda one: one[:2])


def _delayed(broker: Broker, topic: str) -> Any:
    """Without how long each still has to wait."""
    body = call(broker, "GET", f"/topics/{topic}/delayed").body
    for one in body.get("messages", ()):
        one.pop("time_remaining")
    return body
