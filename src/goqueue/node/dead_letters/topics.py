"""Where dead letters go, and what their topic is like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from goqueue.core.lease.events import Target
from goqueue.model.dead_letter_headers import SUFFIX as SUFFIX
from goqueue.model.settings import DAY_MS, MESSAGE_BYTES_MAX, TopicSettings

_RETENTION_MS: Final = 14 * DAY_MS
_HEADER_ROOM_BYTES: Final = 16 * 1024  # the names, a group, a member and an error of a thousand characters

HomeOf = Callable[[str, int], int]  # of a partition that goes, the one that takes its place; else itself


def _is_new(topic: str) -> int | None:
    return None


def _stays(topic: str, partition: int) -> int:
    return partition


def dead_letter_target(
    topic: str,
    partition: int,
    settings: TopicSettings,
    partition_count_of: Callable[[str], int | None] = _is_new,
    home_of: HomeOf = _stays,
) -> Target | None:
    """None where there is nowhere to go: a topic of dead letters has none of its own unless somebody says so."""
    name = settings.dlq_topic or ("" if topic.endswith(SUFFIX) else f"{topic}{SUFFIX}")
    if not name or name == topic:
        return None
    count = partition_count_of(name)  # None: it will have at least as many partitions as the topic has
    return Target(name, home_of(name, partition if count is None else partition % count))


def dead_letter_settings(source: TopicSettings) -> Mapping[str, str]:
    """Of a topic that is made for the dead letters of another."""
    bytes_max = min(source.max_message_bytes + _HEADER_ROOM_BYTES, MESSAGE_BYTES_MAX)
    return {"retention.ms": str(_RETENTION_MS), "max.message.bytes": str(bytes_max)}
