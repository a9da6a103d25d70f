"""Parts of batches on their way from the partition they were sent to, to the one where their keys live.

A part is durable in its home before the rest of its batch is appended. It comes under a producer id of its own with the sequences
of its batch (`core/producer.py`), so it is stored once, however often it is sent. One of a batch without a producer id would be stored as
often as it is sent: so it is sent again only if it was refused, and not where that is not known. Who leads the home takes it only if its own
catalogue says that the records belong there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import Final

from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.core.cluster.scaling import Scaling
from goqueue.log.batch import (
    NO_PRODUCER,
    BatchHeader,
    crc_matches,
    frame_problem,
    read_header,
    rebuild_batch,
)
from goqueue.log.records import contains
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, PeerUnreachable, ReplicationUnknown
from goqueue.model.delay import DELIVER_AT_MARK
from goqueue.model.errors import (
    CorruptBatch,
    GoQueueError,
    InvalidBatch,
    NotEnoughReplicas,
    PartitionNotFound,
)
from goqueue.node.clock import Clock
from goqueue.node.directory import Directory
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.scaling.held import lacking
from goqueue.node.scaling.homes import Homes, Opened
from goqueue.node.scaling.ports import Held, HeldCall, Part, RemoteParts, Silence, SilenceCall
from goqueue.node.scaling.quiet import Quiet
from goqueue.node.scaling.turns import Turns
from goqueue.node.schedule.intake import Intake
from goqueue.node.tenure import Tenure
from goqueue.node.topic_table import TopicTable

PATIENCE_S: Final = 1.0  # the other side may hear of a change a little later
_PAUSE_S: Final = 0.03


class Parts:
    def __init__(
        self,
        homes: Homes,
        table: TopicTable,
        guard: Guard,
        directory: Directory,
        clock: Clock,
        intake: Intake,
        quiet: Quiet,
        remote: RemoteParts | None,
    ) -> None:
        """`remote` is None where this node is alone."""
        self._homes = homes
        self._table = table
        self._guard = guard
        self._directory = directory
        self._clock = clock
        self._intake = intake
        self._quiet = quiet
        self._remote = remote
        self._turns = Turns()

    # ---------------------------------------------------------------- sending

    async def send(self, part: Part, scaling: Scaling) -> int:
        """The offset of the batch in its home, where it is durable. HomeUndecided where it cannot be brought there, or the catalogue
        has changed meanwhile. ReplicationUnknown where it may be there, and would not be known if it came again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                return await self._send(part)
            except (NotLeader, PeerUnreachable) as error:
                if isinstance(error, PeerUnreachable) and not _is_numbered(part.batch):
                    raise _unknown(error) from error
                has_changed = self._homes.scaling(part.topic) is not scaling
                if has_changed or loop.time() >= deadline:
                    raise HomeUndecided(part.topic, part.source, error.sentence) from error
            await asyncio.sleep(_PAUSE_S)

    async def _send(self, part: Part) -> int:
        node = self._leader(part.topic, part.home)
        if self._remote is None or node is None:
            return await self.accept(part)
        return await self._remote.send(node, part)

    async def silence(self, call: SilenceCall, here: Callable[[SilenceCall], Silence]) -> Silence:
        """As whoever leads the partition says; `here` is who says it on this node."""
        node = self._leader(call.topic, call.partition)
        if self._remote is None or node is None:
            return here(call)
        return await self._remote.silence(node, call)

    async def held(self, call: HeldCall, here: Callable[[HeldCall], Awaitable[Held]]) -> Held:
        """As `silence`."""
        node = self._leader(call.topic, call.partition)
        if self._remote is None or node is None:
            return await here(call)
        return await self._remote.held(node, call)

    def _leader(self, topic: str, index: int) -> str | None:
        """The node that leads the partition; None: this one."""
        leader = self._homes.leader(topic, index)
        if self._remote is None or leader == self._directory.number:
            return None
        node = "" if leader is None or leader == NO_LEADER else self._directory.name_of(leader)
        if not node:
            raise NotLeader(topic, index)
        return node

    # ---------------------------------------------------------------- accepting

    async def accept(self, part: Part) -> int:
        """What `RemoteParts.send` promises, of a partition that this node leads."""
        self._guard.admit_write(1)
        try:
            partition = self._table.get(part.topic).partition(part.home)
        except PartitionNotFound as error:  # this node has not come to that yet
            raise HomeUndecided(part.topic, part.source, error.sentence) from error
        header = _checked(part.batch)
        # By producer, and not by the turns of those who divide: they may wait for each other's parts.
        async with self._turns.of(partition, header.producer_id):
            return await self._accept(part, partition, header)

    async def _accept(self, part: Part, partition: Partition, header: BatchHeader) -> int:
        await partition.lead()
        tenure = Tenure(partition)
        _check_replicas(partition)
        opened = Opened(header, part.batch)
        if contains(opened.opened[0], DELIVER_AT_MARK):
            self._check_home(part, opened)
            opened, rest = await self._divide(partition, opened)
        else:
            rest = await self._lacking(partition, header, opened, ())
        tenure.check()
        self._check_home(part, opened)
        self._quiet.arrived(partition, header.producer_id)
        now_ms = self._clock.now_ms()
        if rest is None:
            stored = partition.append(opened.batch, opened.header, now_ms=now_ms)
        else:
            stored = partition.append_lacking(rest.batch, rest.header, now_ms=now_ms)
        end = partition.log.end if stored.is_duplicate else stored.end
        await partition.settled(end, under=tenure.leadership)
        try:
            tenure.check()  # else what is settled may be another leader's
        except NotLeader as error:
            if _is_numbered(part.batch):
                raise
            raise _unknown(error) from error
        return stored.base_offset

    async def _divide(self, partition: Partition, opened: Opened) -> tuple[Opened, Opened | None]:
        """A part without what has to wait for its time; and of one that has come before, what is lacking. What has to wait of that is not known
        when it comes once more: the schedule knows one set of records of a batch."""
        header = opened.header
        delay_ms_max = self._table.get(partition.topic).settings.delay_max_ms
        divided = await self._intake.divide(partition, header, opened.batch, delay_ms_max)
        opened = Opened(divided.header, divided.batch)
        rest = await self._lacking(partition, header, opened, divided.later)
        if rest is None:
            return opened, None
        nameless = rest.header._replace(producer_id=NO_PRODUCER)
        later = (await self._intake.divide(partition, nameless, rest.batch, delay_ms_max)).later
        rows = [row for row in rest.rows() if row[0] not in later]
        batch = rebuild_batch(header, rows, delete_horizon_ms=None)
        return opened, Opened(read_header(batch), batch) if rows else None

    async def _lacking(
        self, partition: Partition, header: BatchHeader, opened: Opened, later: Container[int]
    ) -> Opened | None:
        if partition.find(header) is None:
            return None
        return await lacking(partition, opened, later, partial(self._homes.is_newcomer, partition))

    def _check_home(self, part: Part, opened: Opened) -> None:
        scaling = self._homes.scaling(part.topic)
        if scaling is not None:
            homes = self._homes.spread(part.topic, scaling, part.source, opened.rows())
            if set(homes) <= {part.home}:
                return
        raise HomeUndecided(
            part.topic, part.source, f"partition {part.home} is not the home of all that was sent on to it"
        )


def _checked(batch: bytes) -> BatchHeader:
    header = read_header(batch)
    problem = frame_problem(header)
    if problem or header.size != len(batch):
        raise InvalidBatch(problem or f"the batch says it has {header.size} bytes; {len(batch)} came")
    if not crc_matches(batch, 0, header):
        raise CorruptBatch(f"the batch's checksum is not the stated {header.crc:#010x}", crc=header.crc)
    return header


def _is_numbered(batch: bytes) -> bool:
    return read_header(batch).producer_id != NO_PRODUCER


def _unknown(error: GoQueueError) -> ReplicationUnknown:
    return ReplicationUnknown(
        f"{error.sentence}; whether the records are stored is not known", **error.details
    )


def _check_replicas(partition: Partition) -> None:
    leadership = partition.leadership
    if leadership is not None and not leadership.has_enough:
        raise NotEnoughReplicas(
            f"{partition.topic}-{partition.index} has too few replicas in sync",
            topic=partition.topic,
            partition=partition.index,
        )
