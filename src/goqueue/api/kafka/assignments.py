"""The partitions of members as the answers of group APIs write them. A topic that was deleted meanwhile is left out: the
next heartbeat says so."""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.context import Context
from goqueue.model.errors import GoQueueError

Assignment = tuple[tuple[str, tuple[int, ...]], ...]


def assigned(context: Context, messages: Any, assignment: Assignment) -> Any:
    """What a member is told, in the classes of its heartbeat's answer."""
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=id, partitions=partitions)
            for _, id, partitions in _existing(context, assignment)
        ]
    )


def described(context: Context, messages: Any, assignment: Assignment) -> Any:
    """What an administrator is told, in the classes of that answer."""
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=id, topic_name=name, partitions=partitions)
            for name, id, partitions in _existing(context, assignment)
        ]
    )


def _existing(context: Context, assignment: Assignment) -> list[tuple[str, bytes, tuple[int, ...]]]:
    found: list[tuple[str, bytes, tuple[int, ...]]] = []
    for name, partitions in assignment:
        try:
            found.append((name, context.topic_id(name), partitions))
        except GoQueueError:
            continue
    return found
