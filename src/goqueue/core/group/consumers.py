"""The consumer groups of a shard: made by their first event, gone with their last, and their next deadlines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    ConsumerEvent,
    ConsumerGroupForgotten,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    CurrentRemoved,
    MemberRemoved,
    TargetRemoved,
)
from goqueue.core.group.deadlines import GroupDeadlines, Key, Kind
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import UnknownMember

_TOMBSTONES = (ConsumerGroupForgotten, MemberRemoved, TargetRemoved, CurrentRemoved)


class Consumers:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        deadlines: GroupDeadlines,
        blocked: Callable[[str, str], frozenset[int]],
    ) -> None:
        """`blocked` gives the partitions of a topic that a group is not given."""
        self._config = config
        self._topics = topics
        self._blocked = blocked
        self._deadlines = deadlines
        self._groups: dict[str, ConsumerGroup] = {}
        self._empty_since_ms: dict[str, int] = {}  # of those without members; a restart starts it anew
        self._changed: dict[str, None] = {}  # since their deadlines were looked at

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def ids(self) -> list[str]:
        return list(self._groups)

    def count(self) -> int:
        return len(self._groups)

    def empty_since_ms(self, group_id: str) -> int | None:
        """None where there are members, or no such group."""
        return self._empty_since_ms.get(group_id)

    def heartbeat(
        self, command: ConsumerHeartbeat, now_ms: int
    ) -> tuple[list[ConsumerEvent], ConsumerHeartbeatReply]:
        group = self._groups.get(command.group_id)
        if group is None:
            if command.member_epoch != JOIN_EPOCH:
                raise UnknownMember(
                    f"there is no consumer group {command.group_id!r}; join again with epoch {JOIN_EPOCH}",
                    group=command.group_id,
                    member=command.member_id,
                )
            group = self._new(command.group_id)
        events, reply = group.heartbeat(command, now_ms)
        self._groups[command.group_id] = group
        self._changed[command.group_id] = None
        return events, reply

    def tick(self, group_id: str, now_ms: int) -> list[ConsumerEvent]:
        self._deadlines.cancel(Key(Kind.CONSUMER, group_id))
        group = self._groups.get(group_id)
        if group is None:
            return []
        self._changed[group_id] = None
        return group.tick(now_ms)

    def settle(self, now_ms: int) -> list[str]:
        """Bring the deadlines up to date; the groups that have become empty."""
        emptied: list[str] = []
        for group_id in self._changed:
            group = self._groups.get(group_id)
            at_ms = None if group is None else group.next_tick_ms()
            if at_ms is None:
                self._deadlines.cancel(Key(Kind.CONSUMER, group_id))
            else:
                self._deadlines.set(Key(Kind.CONSUMER, group_id), max(at_ms, now_ms + 1))
            if group is None or not group.is_empty:
                self._empty_since_ms.pop(group_id, None)
            elif group_id not in self._empty_since_ms:
                self._empty_since_ms[group_id] = now_ms
                emptied.append(group_id)
        self._changed = {}
        return emptied

    def apply(self, event: ConsumerEvent) -> None:
        group_id = event.group_id
        self._changed[group_id] = None
        group = self._groups.get(group_id)
        if group is None:
            if isinstance(event, _TOMBSTONES):
                return  # compaction has kept what was said of a group that is gone
            group = self._groups[group_id] = self._new(group_id)
        group.apply(event)
        if isinstance(event, _TOMBSTONES) and group.is_empty and _is_nothing(group):
            del self._groups[group_id]

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._config, self._topics, partial(self._blocked, group_id))

    def resume(self, now_ms: int) -> None:
        for group_id, group in self._groups.items():
            group.resume(now_ms)
            self._changed[group_id] = None


def _is_nothing(group: ConsumerGroup) -> bool:
    """Not even an epoch is left, nor anything of a member: then it would only forget itself."""
    return group.describe().epoch == 0 and len(group.forget()) == 1
