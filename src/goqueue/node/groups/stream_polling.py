"""Polls of stream members: records of the partitions that the member has, each from where it is.

A poll that finds nothing waits for data in any of them, and heartbeats for the member meanwhile; so it also hears when
its partitions change, and then says so at once, with or without records.
"""

from __future__ import annotations

import asyncio
from typing import Final

from goqueue.model.errors import DataCorrupt, GoQueueError, OffsetOutOfRange, PartitionNotFound, TopicNotFound
from goqueue.node.groups.member_requests import Membership, Place, Polled, PollRequest
from goqueue.node.groups.stream_members import StreamMember, StreamMembers
from goqueue.node.guard import Guard, NodeState
from goqueue.node.metrics import Metrics
from goqueue.node.parking import Parked
from goqueue.node.partition import Partition
from goqueue.node.queue.requests import Message
from goqueue.node.requests import ReadQuery, ReadResult
from goqueue.node.spread.reading import Reading
from goqueue.node.topic_table import TopicTable

_PAUSE_S: Final = 0.1  # before a partition is asked again that could not be read


class StreamPolling:
    def __init__(
        self, members: StreamMembers, reader: Reading, table: TopicTable, guard: Guard, metrics: Metrics
    ) -> None:
        self._members = members
        self._reader = reader
        self._table = table
        self._guard = guard
        self._metrics = metrics

    async def poll(self, poll: PollRequest) -> Polled:
        """To ask for more says that what was given before is done with."""
        self._guard.admit_read()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll.wait_ms / 1_000
        member = self._members.find(poll.who)
        async with member.turn:
            membership = self._members.current(member)
            known = membership.assigned
            member.processed = dict(member.positions)
            membership = await self._heard(member, membership)
            messages = await self._collect(member, membership, poll.limit)
        while not messages and membership.assigned == known:
            beat_at = member.heard_at + membership.heartbeat_interval_ms / 1_000
            if not await self._until_news(member, membership, min(deadline, beat_at), deadline):
                break
            async with member.turn:
                membership = await self._heard(member, self._members.current(member))
                messages = await self._collect(member, membership, poll.limit)
        return Polled(membership, messages)

    async def _heard(self, member: StreamMember, membership: Membership) -> Membership:
        """A poll is a heartbeat, where one is due."""
        if self._members.is_due(member, membership):
            membership = await self._members.beat(member)
        await self._members.commit_processed(member)
        return membership

    async def _collect(self, member: StreamMember, membership: Membership, limit: int) -> list[Message]:
        """Its positions move when everything is there, and not at all if the call is given up before."""
        await self._find_positions(member, membership)
        places = membership.assigned
        first = member.poll_count % len(places) if places else 0
        messages: list[Message] = []
        moved: dict[Place, int] = {}
        refusal: GoQueueError | None = None
        bytes_left = self._guard.limits.read_bytes_max
        for place in [*places[first:], *places[:first]]:
            if len(messages) >= limit or bytes_left <= 0:
                break
            try:
                result = await self._read(place, member.positions[place], limit - len(messages))
            except (TopicNotFound, PartitionNotFound):
                continue  # deleted; the group will say so
            except DataCorrupt as error:
                refusal = refusal or error  # the other partitions are well
                continue
            messages += [Message(*place, record) for record in result.records]
            bytes_left -= sum(len(one.value or b"") + len(one.key or b"") for one in result.records)
            moved[place] = result.next_offset
        if refusal is not None and not messages:
            raise refusal
        member.poll_count += 1
        member.positions.update(moved)
        return messages

    async def _find_positions(self, member: StreamMember, membership: Membership) -> None:
        missing = [place for place in membership.assigned if place not in member.positions]
        if not missing:
            return
        for place, offset in (await self._members.start_positions(member, missing)).items():
            member.positions[place] = 0 if offset is None else offset

    async def _read(self, place: Place, position: int, limit: int) -> ReadResult:
        """From the earliest record there is, where the log does not reach to the position."""
        try:
            return await self._reader.read(*place, ReadQuery(offset=position, limit=limit))
        except OffsetOutOfRange:
            return await self._reader.read(*place, ReadQuery(limit=limit))

    async def _until_news(
        self, member: StreamMember, membership: Membership, until: float, deadline: float
    ) -> bool:
        """Until something may have come, or the member is to be heard of; False when the poll is over."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline or self._guard.state is not NodeState.READY:
            return False
        here = self._open(membership)
        ends = [(partition, member.positions[place]) for place, partition in here]
        elsewhere = [place for place in membership.assigned if place not in dict(here)]
        if member.has_news or any(partition.last_stable_offset > position for partition, position in ends):
            return True  # it came while other partitions were read
        self._guard.admit_parking()
        future: asyncio.Future[None] = loop.create_future()
        parked: list[tuple[Partition, Parked]] = []
        timer = loop.call_at(until, _wake, future)
        member.waiting[future] = None
        self._guard.parked_count += 1
        self._metrics.parked_reads.inc()
        wait_ms = max(0, round((until - loop.time()) * 1_000))
        reads = [
            asyncio.ensure_future(self._until_written(place, member.positions[place], wait_ms, future))
            for place in elsewhere
            if place in member.positions
        ]
        try:
            for partition, position in ends:
                parked.append((partition, partition.park(future, position, committed=True)))
            await future
        finally:
            timer.cancel()
            member.waiting.pop(future)
            self._guard.parked_count -= 1
            self._metrics.parked_reads.dec()
            for partition, one in parked:
                partition.unpark(one)
            for read in reads:
                read.cancel()
            if reads:
                await asyncio.wait(reads)
        return True

    async def _until_written(
        self, place: Place, position: int, wait_ms: int, future: asyncio.Future[None]
    ) -> None:
        """To a partition that another node leads."""
        try:
            await self._reader.read(*place, ReadQuery(offset=position, limit=1, wait_ms=wait_ms))
        except (TopicNotFound, PartitionNotFound):
            return  # deleted; the group will say so
        except GoQueueError:  # whoever collects will be told, or it has passed by then
            await asyncio.sleep(_PAUSE_S)
        _wake(future)

    def _open(self, membership: Membership) -> list[tuple[Place, Partition]]:
        found: list[tuple[Place, Partition]] = []
        for topic, index in membership.assigned:
            try:
                partition = self._table.get(topic).partition(index)
                partition.check_leads()
                found.append(((topic, index), partition))
            except GoQueueError:  # another's, or deleted, and the group will say so
                continue
        return found


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
