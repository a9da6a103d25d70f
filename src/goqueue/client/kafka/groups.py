"""How far a group has come: committed for it from outside, as tools do, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goqueue.client.kafka.brokers import GROUP, Brokers, Place
from goqueue.client.kafka.errors import check
from goqueue.client.kafka.layouts import requests

_C = requests("offset_commit")
_F = requests("offset_fetch")


def commit_offsets(brokers: Brokers, group_id: str, offsets: Mapping[Place, int]) -> None:
    """The group must have no members: who has some, lets them commit."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        one = _C.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, []).append(one)

    def attempt() -> None:
        answer = brokers.call_coordinator(
            GROUP,
            group_id,
            "offset_commit",
            group_id=group_id,
            topics=[_C.OffsetCommitRequestTopic(name=name, partitions=ones) for name, ones in topics.items()],
        )
        for topic in answer.topics:
            for one in topic.partitions:
                what = f"committing {topic.name}-{one.partition_index} for group {group_id!r}"
                check(one.error_code, what)

    if offsets:
        brokers.retrying(attempt)


def committed_offsets(brokers: Brokers, group_id: str) -> dict[Place, int]:
    """Of every partition for which there is one; empty for a group that nobody has heard of."""

    def attempt() -> dict[Place, int]:
        answer = brokers.call_coordinator(
            GROUP,
            group_id,
            "offset_fetch",
            groups=[_F.OffsetFetchRequestGroup(group_id=group_id, topics=None)],
        )
        found: dict[Place, int] = {}
        for group in answer.groups:
            check(group.error_code, f"the offsets of group {group_id!r}")
            for topic in group.topics:
                for one in topic.partitions:
                    check(
                        one.error_code,
                        f"the offset of group {group_id!r} in {topic.name}-{one.partition_index}",
                    )
                    if one.committed_offset >= 0:
                        found[topic.name, one.partition_index] = one.committed_offset
        return found

    return brokers.retrying(attempt)
