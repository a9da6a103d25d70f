"""Workers of groups: consumers that process and commit, and those that do it exactly once by a transaction.

Each is a seat that is taken by one member after another: a member works for a while, then leaves, dies without a word or
falls silent for longer than its session and goes on as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import Records
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.fetching import Fetching, Position
from goqueue.sim.kafka.history import OffsetCommit, OffsetRead, Part, now_s
from goqueue.sim.kafka.members import SESSION_S, Member
from goqueue.sim.kafka.txn_producer import TxnOver, TxnProducer
from goqueue.sim.kafka.world import RETRIABLE, World, pause

DERIVED = ">"  # between the transaction that made an output and the input it was made of
_UNSTABLE = 88
_MOVED_ON = frozenset({22, 25, 27, 82, 110, 113})
_SILENCE_RATE = 0.1

NewMember = Callable[[KafkaClient, str], Member]


class Work(Protocol):
    """What is done with records; False or an error: it does not count, read them again."""

    async def do(self, member: Member, found: dict[Part, Records], after: dict[Part, Position]) -> bool: ...

    def reset(self) -> None:
        """The member is gone; another one takes the seat."""


class Worker:
    def __init__(
        self,
        world: World,
        name: str,
        group: str,
        new_member: NewMember,
        new_work: Callable[[KafkaClient], Work],
    ) -> None:
        self._world = world
        self._rng = world.child()
        self._name = name
        self._group = group
        self._client = world.client(name)
        self._new_member = new_member
        self._work = new_work(self._client)
        self._fetching = Fetching(world.history, self._client, name, is_committed=True)
        self._positions: dict[Part, Position] = {}

    async def run(self) -> None:
        member_count = 0
        while not self._world.is_done:
            member_count += 1
            member = self._new_member(self._client, f"{self._name}-{member_count}")
            await self._live(member)
            await self._end(member)
            self._positions.clear()
            self._work.reset()
            await asyncio.sleep(0 if self._world.is_calm else self._rng.uniform(0.1, 2.0))
        self._client.close()

    async def _live(self, member: Member) -> None:
        ends_s = now_s() + self._rng.uniform(2.0, 12.0)
        while not self._world.is_done and (self._world.is_calm or now_s() < ends_s):
            generation = member.generation
            try:
                await member.poll()
                if member.is_classic and member.generation != generation:
                    self._positions.clear()
                await self._step(member)
            except NoAnswer:
                await pause(self._rng)

    async def _end(self, member: Member) -> None:
        if self._world.is_done or self._rng.random() < 0.5:
            try:
                await member.leave()
            except NoAnswer:
                pass
        else:
            member.vanish()
            self._client.close()

    async def _step(self, member: Member) -> None:
        for part in [part for part in self._positions if part not in member.owned]:
            del self._positions[part]
        if not member.owned:
            await pause(self._rng)
            return
        if not await self._locate(member):
            await pause(self._rng)
            return
        if not self._fetching.is_validated:
            await self._fetching.validate(self._positions)
        found = await self._fetching.fetch(self._positions, wait_ms=self._rng.choice((100, 600)))
        found = {part: records for part, records in found.items() if self._is_news(part, records)}
        if not found:
            return
        after = {
            part: Position(records.next_offset, max(records.leader_epoch, self._positions[part].leader_epoch))
            for part, records in found.items()
        }
        if await self._work.do(member, found, after):
            self._positions |= after
        else:
            self._positions.clear()

    def _is_news(self, part: Part, records: Records) -> bool:
        return records.next_offset > self._positions[part].offset

    async def _locate(self, member: Member) -> bool:
        """Where the group has come to in what is new; False if that is not settled yet."""
        parts = [part for part in member.owned if part not in self._positions]
        if not parts:
            return True
        found = await read_offsets(self._world, self._client, self._group, parts)
        if found is None:
            return False
        self._positions |= found
        await self._fetching.validate(self._positions)
        return True


async def read_offsets(
    world: World, client: KafkaClient, group: str, parts: list[Part]
) -> dict[Part, Position] | None:
    """What is committed, told to the history; None while a transaction is about to change it."""
    kinds = requests("offset_fetch")
    sent_s = now_s()
    topics = [
        kinds.OffsetFetchRequestTopics(name=part.topic, partition_indexes=[part.partition]) for part in parts
    ]
    answer = await client.call(
        "offset_fetch",
        9,
        groups=[kinds.OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=True,
    )
    code = answer.groups[0].error_code
    if code:
        if code not in RETRIABLE:
            world.history.violate(f"OffsetFetch of {group} gave {code}")
        return None
    positions: dict[Part, Position] = {}
    for topic in answer.groups[0].topics:
        for one in topic.partitions:
            if one.error_code:
                if one.error_code not in RETRIABLE and one.error_code != _UNSTABLE:
                    world.history.violate(f"OffsetFetch of {group} gave {one.error_code}")
                return None
            part = Part(topic.name, one.partition_index)
            world.history.offset_reads.append(
                OffsetRead(group, part, one.committed_offset, one.metadata or "", sent_s, now_s())
            )
            is_set = one.committed_offset >= 0
            positions[part] = (
                Position(one.committed_offset, one.committed_leader_epoch) if is_set else Position(0)
            )
    return positions


class Consuming:
    """At least once: process, then commit."""

    def __init__(self, world: World, client: KafkaClient, group: str) -> None:
        self._world = world
        self._rng = world.child()
        self._history = world.history
        self._client = client
        self._group = group
        self._processed = self._history.processed.setdefault(group, set())

    def reset(self) -> None:
        """Nothing is kept."""

    async def do(self, member: Member, found: dict[Part, Records], after: dict[Part, Position]) -> bool:
        for records in found.values():
            self._processed.update(records.values.values())
        await _maybe_fall_silent(self._world, self._rng)
        commits = {
            part: OffsetCommit(
                f"{self._history.new_commit_id()}.{part.partition}",
                self._group,
                part,
                position.offset,
                member.member_id,
                member.generation,
                now_s(),
            )
            for part, position in after.items()
        }
        for commit in commits.values():
            self._history.commit(commit)
        kinds = requests("offset_commit")
        answer = await self._client.call(
            "offset_commit",
            9,
            group_id=self._group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[
                kinds.OffsetCommitRequestTopic(
                    name=part.topic,
                    partitions=[
                        kinds.OffsetCommitRequestPartition(
                            partition_index=part.partition,
                            committed_offset=position.offset,
                            committed_leader_epoch=position.leader_epoch,
                            committed_metadata=commits[part].id,
                        )
                    ],
                )
                for part, position in after.items()
            ],
        )
        codes = {
            Part(topic.name, one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
        }
        return self._settle(commits, codes)

    def _settle(self, commits: dict[Part, OffsetCommit], codes: dict[Part, int]) -> bool:
        for part, code in codes.items():
            if code == 0:
                commits[part].answered_s = now_s()
            elif code in _MOVED_ON:
                commits[part].answered_s, commits[part].is_refused = now_s(), True
            elif code not in RETRIABLE:
                self._history.violate(f"OffsetCommit of {commits[part].member_id} gave {code}")
        return not any(codes.values())


class Transforming:
    """Exactly once: what is made of the records and how far they were read are one transaction."""

    def __init__(
        self, world: World, name: str, group: str, targets: list[Part], *, is_new_style: bool
    ) -> None:
        self._world = world
        self._rng = world.child()
        self._name = name
        self._group = group
        self._targets = targets
        self._is_new_style = is_new_style
        self._producer: TxnProducer | None = None
        self._producer_count = 0

    def reset(self) -> None:
        if self._producer is not None:
            self._producer.abandon()
            self._producer.close()
            self._producer = None

    async def do(self, member: Member, found: dict[Part, Records], after: dict[Part, Position]) -> bool:
        try:
            producer = await self._initialised()
            txn = producer.begin()
            for records in found.values():
                outputs = [f"{txn.name}{DERIVED}{value}" for value in records.values.values()]
                if outputs:
                    await producer.send(self._rng.choice(self._targets), outputs)
            await _maybe_fall_silent(self._world, self._rng)
            offsets = {part: (position.offset, position.leader_epoch) for part, position in after.items()}
            await producer.send_offsets(self._group, member.member_id, member.generation, offsets)
            await _maybe_fall_silent(self._world, self._rng)
            how = 0.5 if self._world.is_calm else self._rng.random()
            if how < 0.1:
                await producer.commit_and_die()
            else:
                await producer.end(is_commit=how < 0.9)
        except TxnOver:
            self.reset()
            return False
        return txn.outcome.value == "committed"

    async def _initialised(self) -> TxnProducer:
        if self._producer is None:
            self._producer_count += 1
            self._producer = TxnProducer(
                self._world,
                f"{self._name}/{self._producer_count}",
                self._name,
                is_new_style=self._is_new_style,
            )
            await self._producer.init()
        return self._producer


async def _maybe_fall_silent(world: World, rng: Random) -> None:
    """Longer than the session: the group goes on without this member, which does not know it."""
    if not world.is_calm and rng.random() < _SILENCE_RATE:
        await asyncio.sleep(1.4 * SESSION_S)
