"""Members of consumer groups (KIP-848) for whom the broker does what a Kafka client does for itself: it heartbeats with
what the member owns, gives up what is to be given up, and remembers the position in each partition.

Who is a member, of which epoch, with what, is the group's to say (`Groups.consumer_member`), durably; so a member that
joined over REST stays one across a restart. Positions are not durable: they begin again at the committed offsets. How a
member wants to be treated is written where its host would be, for it has none that matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from goqueue.core.group.commands import NO_OFFSET, CommitOffsets, FetchOffsets, NewOffset
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Assignment,
    ConsumerGroupAdvanced,
    ConsumerHeartbeat,
    ConsumerMemberFacts,
    MemberReconciled,
    MemberRemoved,
    MemberState,
    pack,
    unpack,
)
from goqueue.core.group.events import Event
from goqueue.model.errors import FencedMemberEpoch, GoQueueError, InvalidRequest, UnknownMember
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.member_requests import GroupMode, Join, Membership, Place, Who
from goqueue.node.internal_topics import PARTITION_COUNT, coordinator_partition

logger = logging.getLogger(__name__)

AUTO_COMMIT_S: Final = 5.0
SESSION_MS: Final = 30_000
REBALANCE_MS_MIN: Final = 1_000
_HOST: Final = "rest"
_COOPERATIVE: Final = "cooperative"
_AUTO_COMMIT: Final = "auto_commit"
_NEVER: Final = float("-inf")


class StreamMember:
    """What is known of a member until the broker restarts."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.turn = asyncio.Lock()  # one call of a member at a time looks at its positions
        self.positions: dict[Place, int] = {}
        self.processed: dict[Place, int] = {}  # what it had when it last asked for more
        self.given_up: set[Place] = set()
        self.poll_count = 0
        self.heard_at = _NEVER
        self.has_news = False  # of its group, since it was last heard of
        self.committed: dict[Place, int] = {}  # by the broker, for the member
        self.committed_at = _NEVER
        self.waiting: dict[asyncio.Future[None], None] = {}
        self.is_pending = False  # partitions that others hold will be its own

    def wake(self) -> None:
        """Its group has changed: it should say that it is there, and hear about it."""
        self.has_news = True
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    def keep(self, places: Collection[Place]) -> None:
        self.positions = {place: at for place, at in self.positions.items() if place in places}
        self.processed = {place: at for place, at in self.processed.items() if place in places}
        self.committed = {place: at for place, at in self.committed.items() if place in places}


class StreamMembers:
    def __init__(self, groups: Groups, config: GroupConfig) -> None:
        self._groups = groups
        self._config = config
        self._members: dict[str, dict[str, StreamMember]] = {}
        groups.when_changed(self._note)
        groups.when_ended(self._leave_to_others)

    async def join(self, join: Join) -> Membership:
        """Who joins again begins again at the committed offsets."""
        self._check_rebalance(join.rebalance_timeout_ms)
        words = [_HOST, *([_COOPERATIVE] if join.is_cooperative else [])]
        words += [_AUTO_COMMIT] if join.auto_commit else []
        reply = await self._groups.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=join.group_id,
                member_id=join.member_id,
                member_epoch=JOIN_EPOCH,
                fresh_id="",
                rebalance_timeout_ms=join.rebalance_timeout_ms or self._config.consumer_rebalance_ms_max,
                client_id=join.client_id,
                client_host=" ".join(words),
                subscribed_topics=join.topics,
                assignor=join.strategy,
                owned=(),
                session_timeout_ms=SESSION_MS if join.session_timeout_ms is None else join.session_timeout_ms,
            )
        )
        member = StreamMember(join.group_id, reply.member_id)
        before = self._members.setdefault(join.group_id, {}).pop(reply.member_id, None)
        self._members[join.group_id][reply.member_id] = member
        if before is not None:
            before.wake()
        return self._membership(member, self.facts(member), had=(), revoked=[])

    def _check_rebalance(self, timeout_ms: int | None) -> None:
        most_ms = self._config.consumer_rebalance_ms_max
        if timeout_ms is not None and not REBALANCE_MS_MIN <= timeout_ms <= most_ms:
            raise InvalidRequest(
                f"rebalance_timeout is {timeout_ms} ms; it must be {REBALANCE_MS_MIN} to {most_ms} ms",
                rebalance_timeout_ms=timeout_ms,
            )

    async def heartbeat(self, who: Who, *, revokes: bool) -> Membership:
        """With `revokes`, what is to be given up is given up by this very call."""
        member = self.find(who)
        async with member.turn:
            membership = await self.beat(member, revokes=revokes)
            await self.commit_processed(member)
            return membership

    async def revoke(self, who: Who, places: Sequence[Place]) -> Membership:
        """The member has given them up. When nothing is left to be given up, it gets what is free of its target."""
        member = self.find(who)
        async with member.turn:
            facts = self.facts(member)
            for topic, index in places:
                if (topic, index) in unpack(facts.assigned):
                    raise InvalidRequest(
                        f"{topic}-{index} stays with member {who.member_id!r}: it is not among its partitions_to_revoke",
                        topic=topic,
                        partition=index,
                    )
            member.given_up.update(place for place in places if place in unpack(facts.revoking))
            return await self.beat(member, revokes=False)

    async def leave(self, who: Who) -> list[Place]:
        """What it had. Leaving says that everything it got is done with."""
        member = self.find(who)
        async with member.turn:
            facts = self.facts(member)
            if _AUTO_COMMIT in _words(facts):
                await self._commit(member, facts, member.positions)
            await self._say(member, facts, owned=None, epoch=LEAVE_EPOCH)
        return _held(facts)

    # ---------------------------------------------------------------- for polls

    def find(self, who: Who) -> StreamMember:
        """Refuses one that is unknown or out of date; the answer with the newest generation may still be on its way."""
        facts = self._groups.consumer_member(who.group_id, who.member_id)
        if facts is None:
            raise _unknown(who.group_id, who.member_id)
        if _words(facts)[0] != _HOST:
            raise UnknownMember(
                f"member {who.member_id!r} of group {who.group_id!r} is a Kafka client, which fetches for itself",
                group=who.group_id,
                member=who.member_id,
            )
        is_former = who.generation == facts.previous_epoch != JOIN_EPOCH
        if who.generation is not None and who.generation != facts.epoch and not is_former:
            raise FencedMemberEpoch(
                f"member {who.member_id!r} is at generation {facts.epoch}, not {who.generation}; join again",
                group=who.group_id,
                member=who.member_id,
                generation=who.generation,
                expected=facts.epoch,
            )
        members = self._members.setdefault(who.group_id, {})
        return members.setdefault(who.member_id, StreamMember(who.group_id, who.member_id))

    def facts(self, member: StreamMember) -> ConsumerMemberFacts:
        facts = self._groups.consumer_member(member.group_id, member.member_id)
        if facts is None or self._members.get(member.group_id, {}).get(member.member_id) is not member:
            raise _unknown(member.group_id, member.member_id)
        return facts

    async def beat(self, member: StreamMember, *, revokes: bool | None = None) -> Membership:
        """Say that the member is there, with what it has. Hold its turn. None: as the member wants it."""
        facts = before = self.facts(member)
        if revokes is None:
            revokes = _COOPERATIVE not in _words(facts)
        member.has_news = False  # what comes from here on is news again
        owned = [place for place in _held(facts) if place not in member.given_up]
        facts = await self._say(member, facts, owned=pack(owned))
        revoked: list[Place] = []
        if facts.state is MemberState.PENDING_REVOKE and revokes:
            revoked = unpack(facts.revoking)
            if _AUTO_COMMIT in _words(facts):
                await self._commit(member, facts, _part(member.processed, revoked))
            facts = await self._say(member, facts, owned=facts.assigned)
        member.given_up.intersection_update(unpack(facts.revoking))
        member.keep(_held(facts))
        member.is_pending = facts.state is MemberState.PENDING_ASSIGN
        member.heard_at = asyncio.get_running_loop().time()
        return self._membership(member, facts, had=unpack(before.assigned), revoked=revoked)

    def is_due(self, member: StreamMember, membership: Membership) -> bool:
        """Whether it should be heard of again."""
        interval_s = membership.heartbeat_interval_ms / 1_000
        return member.has_news or asyncio.get_running_loop().time() >= member.heard_at + interval_s

    def current(self, member: StreamMember) -> Membership:
        facts = self.facts(member)
        return self._membership(member, facts, had=unpack(facts.assigned), revoked=[])

    async def commit_processed(self, member: StreamMember) -> None:
        """Every now and then, of a member that wants it."""
        now = asyncio.get_running_loop().time()
        facts = self.facts(member)
        if _AUTO_COMMIT in _words(facts) and now >= member.committed_at + AUTO_COMMIT_S:
            member.committed_at = now
            await self._commit(member, facts, _part(member.processed, unpack(facts.assigned)))

    async def start_positions(
        self, member: StreamMember, places: Collection[Place]
    ) -> dict[Place, int | None]:
        """What is committed for each; None: nothing is."""
        fetched = await self._groups.fetch(FetchOffsets(member.group_id, wanted=pack(places)))
        found: dict[Place, int | None] = {}
        for one in fetched.offsets:
            if one.error is not None:
                raise one.error
            found[one.topic, one.partition] = None if one.offset == NO_OFFSET else one.offset
        return found

    async def topic_deleted(self, topic: str) -> None:
        """One of the same name begins anew."""
        for members in self._members.values():
            for member in members.values():
                member.keep([place for place in member.positions if place[0] != topic])

    def _leave_to_others(self, index: int) -> None:
        """Another node coordinates these groups: it knows better where their members are."""
        for group_id in [id for id in self._members if coordinator_partition(id, PARTITION_COUNT) == index]:
            for member in self._members.pop(group_id).values():
                member.wake()

    def release(self) -> None:
        """The node stops: nobody waits any longer."""
        for members in self._members.values():
            for member in members.values():
                member.wake()

    # ---------------------------------------------------------------- groups

    async def _say(
        self,
        member: StreamMember,
        facts: ConsumerMemberFacts,
        *,
        owned: Assignment | None,
        epoch: int | None = None,
    ) -> ConsumerMemberFacts:
        await self._groups.consumer_heartbeat(
            ConsumerHeartbeat(
                group_id=member.group_id,
                member_id=member.member_id,
                member_epoch=facts.epoch if epoch is None else epoch,
                fresh_id="",
                client_id=facts.client_id,
                client_host=facts.client_host,
                owned=owned,
            )
        )
        return facts if epoch == LEAVE_EPOCH else self.facts(member)

    async def _commit(
        self, member: StreamMember, facts: ConsumerMemberFacts, positions: dict[Place, int]
    ) -> None:
        """If it cannot be done now, it will be the next time: reading goes on."""
        new = {place: at for place, at in positions.items() if member.committed.get(place) != at}
        if not new:
            return
        offsets = tuple(NewOffset(*place, offset) for place, offset in sorted(new.items()))
        try:
            await self._groups.commit(
                CommitOffsets(member.group_id, offsets, member.member_id, generation=facts.epoch)
            )
            member.committed.update(new)
        except GoQueueError as error:
            logger.warning("an automatic commit failed group=%s error=%r", member.group_id, error.sentence)

    def _membership(
        self,
        member: StreamMember,
        facts: ConsumerMemberFacts,
        *,
        had: Collection[Place],
        revoked: list[Place],
    ) -> Membership:
        assigned = unpack(facts.assigned)
        session_ms = facts.session_timeout_ms or self._config.consumer_session_ms
        is_revoking = facts.state is MemberState.PENDING_REVOKE
        return Membership(
            member_id=member.member_id,
            generation=facts.epoch,
            mode=GroupMode.STREAM,
            state=facts.state,
            assigned=assigned,
            added=[place for place in assigned if place not in had],
            to_revoke=unpack(facts.revoking) or revoked,
            pending=[place for place in unpack(facts.target) if place not in assigned],
            revocation_ms=facts.revocation_ms if is_revoking else None,
            heartbeat_interval_ms=min(self._config.consumer_heartbeat_ms, session_ms // 3),
        )

    def _note(self, events: Sequence[Event], is_due: bool) -> None:
        """Members that wait for messages hear of what concerns them: a new epoch all, a partition that was given up those
        who wait for one, its end the one that is gone."""
        for event in events:
            match event:
                case MemberRemoved():
                    self._forget(event)
                case ConsumerGroupAdvanced():
                    for member in self._members.get(event.group_id, {}).values():
                        member.wake()
                case MemberReconciled():
                    for member in self._members.get(event.group_id, {}).values():
                        if member.is_pending and member.member_id != event.member_id:
                            member.wake()

    def _forget(self, event: MemberRemoved) -> None:
        members = self._members.get(event.group_id, {})
        member = members.pop(event.member_id, None)
        if member is not None:
            member.wake()
        if not members:
            self._members.pop(event.group_id, None)


def _held(facts: ConsumerMemberFacts) -> list[Place]:
    return unpack(facts.assigned) + unpack(facts.revoking)


def _part(positions: dict[Place, int], places: Collection[Place]) -> dict[Place, int]:
    return {place: positions[place] for place in places if place in positions}


def _words(facts: ConsumerMemberFacts) -> list[str]:
    return facts.client_host.split(" ")


def _unknown(group_id: str, member_id: str) -> UnknownMember:
    return UnknownMember(
        f"group {group_id!r} has no member {member_id!r}; it never joined, has left or was not heard of: join again",
        group=group_id,
        member=member_id,
    )
