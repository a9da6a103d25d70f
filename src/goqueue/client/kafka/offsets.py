"""Where partitions begin, end, and were at a moment: one request per leader, however many partitions there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goqueue.client.kafka.brokers import Brokers, Place
from goqueue.client.kafka.connection import Address
from goqueue.client.kafka.errors import KafkaError, NotUnderstood, refused
from goqueue.client.kafka.layouts import requests
from goqueue.client.kafka.patience import Patience

EARLIEST = -2
LATEST = -1
_PLACE_COUNT_MAX = 10_000  # of one request
_R = requests("list_offsets")


def find_offsets(brokers: Brokers, places: Iterable[Place], at: int, *, committed: bool) -> dict[Place, int]:
    """`at`: EARLIEST, LATEST, or a timestamp in ms: the first offset that is at least that new, -1 where there is none."""
    if at < EARLIEST:
        raise ValueError(f"{at} is neither EARLIEST, LATEST nor a timestamp from 0 up")
    left = list(dict.fromkeys(places))
    order = left
    found: dict[Place, int] = {}
    patience = Patience(brokers.timeout_s)
    while left:
        failure: KafkaError | None = None
        try:
            for address, asked in _by_leader(brokers, left):
                failure = _ask(brokers, address, asked, at, committed, found) or failure
        except KafkaError as error:
            failure = error
        left = [place for place in left if place not in found]
        if left and failure is None:
            raise NotUnderstood(f"the offset of {left[0][0]}-{left[0][1]} was asked for and not answered")
        if failure is not None:
            for topic in {topic for topic, _ in left}:
                brokers.forget(topic)
            patience.pause(failure)
    return {place: found[place] for place in order}


def _by_leader(brokers: Brokers, places: list[Place]) -> list[tuple[Address, list[Place]]]:
    brokers.learn(brokers.unknown(topic for topic, _ in places))
    leaders: dict[Address, list[Place]] = {}
    for topic, partition in places:
        leaders.setdefault(brokers.leader(topic, partition), []).append((topic, partition))
    return [
        (address, asked[first : first + _PLACE_COUNT_MAX])
        for address, asked in leaders.items()
        for first in range(0, len(asked), _PLACE_COUNT_MAX)
    ]


def _ask(
    brokers: Brokers, address: Address, asked: list[Place], at: int, committed: bool, found: dict[Place, int]
) -> KafkaError | None:
    """Adds what was found; the error of one that was not, the worst first."""
    topics: dict[str, list[Any]] = {}
    for topic, partition in asked:
        topics.setdefault(topic, []).append(_R.ListOffsetsPartition(partition_index=partition, timestamp=at))
    with brokers.lent(address) as connection:
        answer = connection.call(
            "list_offsets",
            replica_id=-1,
            isolation_level=1 if committed else 0,
            topics=[_R.ListOffsetsTopic(name=name, partitions=ones) for name, ones in topics.items()],
            timeout_ms=int(brokers.timeout_s * 1_000),
        )
    failure: KafkaError | None = None
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code == 0:
                found[topic.name, one.partition_index] = one.offset
                continue
            error = refused(one.error_code, f"the offsets of {topic.name}-{one.partition_index}")
            if failure is None or not error.is_retriable:
                failure = error
    return failure
