"""Who may commit, fetch and delete the offsets of a group, by the rules of its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.core.group.classic import unknown_member
from goqueue.core.group.commands import (
    NO_OFFSET,
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    PartitionResult,
    PartitionResults,
    Reply,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.events import Event
from goqueue.core.group.gates import Gates
from goqueue.core.group.known import Known, checked_id, not_empty, refuse_if_unknown, refuse_share_group
from goqueue.core.group.membership import Membership
from goqueue.core.group.offsets import Offsets
from goqueue.core.group.rebalance import Turn
from goqueue.core.group.subscription import CONSUMER_PROTOCOL_TYPE
from goqueue.core.group.topics_view import Topics
from goqueue.model.errors import (
    GoQueueError,
    GroupSubscribedToTopic,
    IllegalGeneration,
    LimitExceeded,
    StaleMemberEpoch,
    TopicNotFound,
)


class Commits:
    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        offsets: Offsets,
        known: Callable[[str], Known],
        membership: Membership,
        gates: Gates,
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._known = known
        self._membership = membership
        self._gates = gates

    def commit(self, command: CommitOffsets, turn: Turn) -> Reply:
        group = self._known(checked_id(command.group_id, may_be_empty=True))
        refuse_share_group(group)
        if group.consumer is not None:
            group.consumer.check_commit(command.member_id, command.generation, command.instance_id)
        elif group.classic is not None:
            self._membership.check_commit(group.classic, command, turn.now_ms)
        else:
            self._check_simple_commit(command)
        events, reply = self._offsets.commit(command, turn.now_ms)
        turn.outcome.events += events
        return reply

    def commit_in_transaction(self, command: CommitInTransaction, turn: Turn) -> Reply:
        group = self._known(checked_id(command.group_id))
        refuse_share_group(group)
        if group.consumer is not None:
            _check_transactional_commit(group.consumer, command)
        elif group.classic is not None:
            self._membership.check_transactional_commit(group.classic, command)
        else:
            self._check_simple_commit(command)
        events, reply = self._offsets.pend(command, turn.now_ms)
        turn.outcome.events += events
        return reply

    def _check_simple_commit(self, command: CommitOffsets | CommitInTransaction) -> None:
        """By a consumer that takes no part in a group: it has no generation."""
        group_id = command.group_id
        if command.generation >= 0:
            if self._offsets.has_group(group_id):
                raise unknown_member(group_id, command.member_id)
            raise IllegalGeneration(
                f"there is no group {group_id!r} of generation {command.generation}", group=group_id
            )
        if (
            not self._offsets.has_group(group_id)
            and self._offsets.group_count() >= self._config.group_count_max
        ):
            raise LimitExceeded(f"{self._config.group_count_max} groups have offsets already, the limit")

    def fetch(self, command: FetchOffsets) -> Reply:
        group = self._known(checked_id(command.group_id, may_be_empty=True))
        refuse_share_group(group)
        if group.consumer is not None and (command.member_id or command.member_epoch >= 0):
            group.consumer.check_commit(command.member_id or "", command.member_epoch, None)
        fetched = self._offsets.fetch(command)
        return FetchedOffsets(tuple(self._begun(command.group_id, one) for one in fetched.offsets))

    def _begun(self, group_id: str, fetched: FetchedOffset) -> FetchedOffset:
        """A group that knows nothing of a partition would begin at its end, if it says so; but not where the partition has
        come by growth: the group would miss what was written before it was given it."""
        if fetched.offset != NO_OFFSET or fetched.error is not None:
            return fetched
        if not self._gates.begins_at_start(group_id, (fetched.topic, fetched.partition)):
            return fetched
        return FetchedOffset(fetched.topic, fetched.partition, 0, is_beginning=True)

    def delete(self, command: DeleteOffsets, turn: Turn) -> Reply:
        group = self._known(checked_id(command.group_id))
        refuse_if_unknown(group)
        refuse_share_group(group)
        group_id, classic = group.group_id, group.classic
        if classic is not None and classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise not_empty(group_id)
        results: list[PartitionResult] = []
        for topic, partition in command.partitions:
            error: GoQueueError | None = None
            events: Sequence[Event] = self._offsets.delete(group_id, (topic, partition))
            if any(one is not None and one.is_subscribed(topic) for one in (classic, group.consumer)):
                error = GroupSubscribedToTopic(
                    f"group {group_id!r} has members that read topic {topic!r}", group=group_id, topic=topic
                )
            elif not events and self._topics.partition_count(topic) is None:
                error = TopicNotFound(topic)
            else:
                turn.outcome.events += events
            results.append(PartitionResult(topic, partition, error))
        return PartitionResults(tuple(results))


def _check_transactional_commit(consumer: ConsumerGroup, command: CommitInTransaction) -> None:
    """Producers of old do not say for which member they commit; their transactional id fences them."""
    is_anonymous = command.generation < 0 and not command.member_id and command.instance_id is None
    if is_anonymous or (command.generation < 0 and consumer.is_empty):
        return
    try:
        consumer.check_commit(command.member_id, command.generation, command.instance_id)
    except StaleMemberEpoch as error:
        raise IllegalGeneration(error.sentence, **error.details) from None
