"""How far groups have come, whatever their kind: a stream's committed offsets, a queue's acknowledged prefix. Shown with
lag, committed by members, and moved by an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from goqueue.core.group.commands import NO_GENERATION, CommitOffsets, FetchOffsets, GroupFacts, NewOffset
from goqueue.core.group.consumer_events import unpack
from goqueue.core.group.share_events import ShareGroupFacts
from goqueue.model.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InconsistentGroupProtocol,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotAssigned,
    StaleMemberEpoch,
    UnknownMember,
)
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.members import check_group_id
from goqueue.node.other_nodes import LedPartition
from goqueue.node.positions import EARLIEST, LATEST
from goqueue.node.queue.ledgers import Place
from goqueue.node.spread.group_places import GroupPlaces
from goqueue.node.topic_table import TopicTable


class ResetTo(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Reset(Struct, frozen=True):
    group_id: str
    to: ResetTo
    topic: str | None = None  # None = every topic that the group has offsets in
    partitions: Sequence[int] = ()  # none = all of the topic
    offset: int | None = None
    timestamp_ms: int | None = None
    is_dry_run: bool = False


class GroupOffset(Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    lag: int


class MovedOffset(Struct, frozen=True):
    topic: str
    partition: int
    old: int | None  # None = the group had not read there
    new: int


class GroupOffsets:
    def __init__(self, groups: Groups, places: GroupPlaces, table: TopicTable) -> None:
        self._groups = groups
        self._places = places
        self._table = table

    async def read(self, group_id: str) -> list[GroupOffset]:
        if isinstance(await self._groups.describe_any(group_id), ShareGroupFacts):
            found = await self._places.of_queue(group_id)
        else:
            found = await self._committed(group_id)
        existing = {
            place: offset
            for place, offset in found.items()
            if place[1] < (self._table.partition_count(place[0]) or 0)
        }
        return _with_lags(existing, await self._places.partitions(topic for topic, _ in existing))

    async def commit(
        self, group_id: str, offsets: Mapping[Place, int], *, member_id: str | None, generation: int | None
    ) -> list[GroupOffset]:
        """For a member, of partitions that it has; without one, only while the group has no members."""
        check_group_id(group_id)
        if not offsets:
            raise InvalidRequest("offsets is empty; name at least one partition")
        facts = await self._describe(group_id)
        if isinstance(facts, ShareGroupFacts):
            raise InconsistentGroupProtocol(
                f"group {group_id!r} is a queue: its offsets follow what is acknowledged. To move it, reset it",
                group=group_id,
            )
        for topic, index in offsets:
            self._table.get(topic).check_partition(index)
        partitions = await self._places.partitions(topic for topic, _ in offsets)
        for place, offset in offsets.items():
            end = partitions[place].facts.high_watermark
            if offset > end:
                raise OffsetOutOfRange(offset, earliest=0, latest=end)
        if member_id is not None:
            generation = self._checked_generation(facts, group_id, member_id, generation, offsets)
        elif generation is not None:
            raise InvalidRequest("a generation is that of a member; give member_id, too")
        else:
            _refuse_members(facts)
        new = tuple(NewOffset(*place, offset) for place, offset in offsets.items())
        await self._commit(
            CommitOffsets(group_id, new, member_id or "", NO_GENERATION if generation is None else generation)
        )
        return _with_lags(offsets, partitions)

    async def reset(self, reset: Reset) -> list[MovedOffset]:
        """A stream's members must have gone: each keeps a position of its own. A queue's receipts become void."""
        check_group_id(reset.group_id)
        _check(reset)
        facts = await self._describe(reset.group_id)
        is_queue = isinstance(facts, ShareGroupFacts)
        before = await (
            self._places.of_queue(reset.group_id) if is_queue else self._committed(reset.group_id)
        )
        places = self._wanted(reset, before)
        moved = [MovedOffset(*place, before.get(place), await self._target(reset, place)) for place in places]
        if reset.is_dry_run:
            return moved
        if is_queue:
            await self._places.seek(reset.group_id, {(one.topic, one.partition): one.new for one in moved})
        else:
            _refuse_members(facts)
            offsets = tuple(NewOffset(one.topic, one.partition, one.new) for one in moved)
            await self._commit(CommitOffsets(reset.group_id, offsets))
        return moved

    async def _describe(self, group_id: str) -> GroupFacts | None:
        try:
            return await self._groups.describe_any(group_id)
        except GroupNotFound:
            return None

    async def _committed(self, group_id: str) -> dict[Place, int]:
        fetched = await self._groups.fetch(FetchOffsets(group_id))
        return {(one.topic, one.partition): one.offset for one in fetched.offsets if one.error is None}

    def _checked_generation(
        self,
        group: GroupFacts | None,
        group_id: str,
        member_id: str,
        generation: int | None,
        offsets: Mapping[Place, int],
    ) -> int | None:
        """Of a classic group, its own check is enough: what its members have they do not tell."""
        if group is None or member_id not in [member.member_id for member in group.members]:
            raise UnknownMember(
                f"group {group_id!r} has no member {member_id!r}; join again",
                group=group_id,
                member=member_id,
            )
        facts = self._groups.consumer_member(group_id, member_id)
        if facts is None:
            return generation
        if generation not in (None, facts.epoch):
            raise StaleMemberEpoch(
                f"member {member_id!r} is at generation {facts.epoch}, not {generation}: what it read may be another's by "
                "now",
                member=member_id,
                generation=generation,
                expected=facts.epoch,
            )
        held = {*unpack(facts.assigned), *unpack(facts.revoking)}
        for topic, index in offsets:
            if (topic, index) not in held:
                raise PartitionNotAssigned(
                    f"{topic}-{index} is not assigned to member {member_id!r}, which has "
                    f"{', '.join(f'{topic}-{index}' for topic, index in sorted(held)) or 'nothing'}",
                    member=member_id,
                    topic=topic,
                    partition=index,
                )
        return facts.epoch

    def _wanted(self, reset: Reset, before: Mapping[Place, int]) -> list[Place]:
        if reset.topic is None:
            places = sorted(before)
            if not places:
                raise GroupNotFound(
                    f"group {reset.group_id!r} has read nothing yet; name the topic", group=reset.group_id
                )
            return places
        topic = self._table.get(reset.topic)
        indexes = sorted(set(reset.partitions)) or range(topic.partition_count)
        for index in indexes:
            topic.check_partition(index)
        return [(reset.topic, index) for index in indexes]

    async def _target(self, reset: Reset, place: Place) -> int:
        if reset.offset is not None:
            facts = (await self._places.partitions([place[0]]))[place].facts
            if not facts.earliest <= reset.offset <= facts.high_watermark:
                raise OffsetOutOfRange(reset.offset, earliest=facts.earliest, latest=facts.high_watermark)
            return reset.offset
        instant = EARLIEST if reset.to is ResetTo.EARLIEST else LATEST
        if reset.timestamp_ms is not None:
            instant = reset.timestamp_ms
        return await self._places.find(place, instant)

    async def _commit(self, command: CommitOffsets) -> None:
        for result in (await self._groups.commit(command)).partitions:
            if result.error is not None:
                raise result.error


def _with_lags(offsets: Mapping[Place, int], partitions: Mapping[Place, LedPartition]) -> list[GroupOffset]:
    return [
        GroupOffset(*place, offset, max(0, partitions[place].last_stable_offset - offset))
        for place, offset in sorted(offsets.items())
    ]


def _refuse_members(facts: GroupFacts | None) -> None:
    if facts is not None and facts.members:
        raise GroupNotEmpty(
            f"group {facts.group_id!r} has members, which go on from where they are; stop them first",
            group=facts.group_id,
        )


def _check(reset: Reset) -> None:
    """Exactly what `to` needs, and nothing else."""
    given = {
        ResetTo.OFFSET: reset.offset is not None,
        ResetTo.TIMESTAMP: reset.timestamp_ms is not None,
    }
    for kind, is_given in given.items():
        if is_given and reset.to is not kind:
            raise InvalidRequest(f"{kind.value} is given, but to is {reset.to.value!r}", field=kind.value)
        if not is_given and reset.to is kind:
            raise InvalidRequest(
                f"to is {kind.value!r}: say which, in the field {kind.value}", field=kind.value
            )
    if reset.topic is None and (reset.partitions or reset.to is ResetTo.OFFSET):
        raise InvalidRequest("partitions and offsets are those of a topic; name it", field="topic")
