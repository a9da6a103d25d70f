"""The follower's side of replication: one task per leader node asks for everything that this node follows there, writes it as
it came, and asks again once it is on disk.

A fetch from an offset says that everything before it is on this node's disk, so the fsync comes between two fetches. What
differs from the leader is cut off first: it was never committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct

from goqueue.log.batch import HEADER_BYTES, crc_matches, read_header
from goqueue.log.cutting import CutRefused
from goqueue.log.disk import Disk
from goqueue.log.recovery import cut_back, reset_log
from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.model.errors import FetchSessionNotFound, GoQueueError, OffsetOutOfRange, StorageError
from goqueue.node.clock import Clock
from goqueue.node.cluster.ports import PeerLinks, ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.deletion import move_start
from goqueue.node.partition import Partition
from goqueue.node.replication.throttle import MoveThrottle
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_GATHER_S: Final = 0.005  # so that many changes at once are one more request
_SYNC_S: Final = 0.01  # before it is asked again whether everything is on disk
_PAUSE_S: Final = 0.1  # after a failure of the other node, or of one partition
_REFUSED_S: Final = 5.0  # where only another leader helps
# Of one partition in one answer; of one that is far behind as much as the answer holds.
_BYTES_MIN: Final = 1024 * 1024
_NO_EPOCH: Final = -1

Place = tuple[str, int]
NameOf = Callable[[int], str | None]
UncleanEpochOf = Callable[[str, int], int]  # of the last election that may have lost records; -1: never


class _Answer(Struct, frozen=True):
    number: int  # of the question
    found: Sequence[ReplicaFound]


class Follower:
    """Everything that this node follows on one other."""

    def __init__(
        self,
        leader: int,
        name_of: NameOf,
        links: PeerLinks,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        throttle: MoveThrottle,
        *,
        unclean_epoch_of: UncleanEpochOf,
        wait_ms: int,
        bytes_max: int,
    ) -> None:
        self._leader = leader
        self._name_of = name_of
        self._links = links
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._throttle = throttle
        self._unclean_epoch_of = unclean_epoch_of
        self._wait_ms = wait_ms
        self._bytes_max = bytes_max
        self._partitions: dict[Place, Partition] = {}
        self._round = 0  # of the session; 0 begins a new one
        self._asked_count = 0
        self._put_at: dict[
            Place, int
        ] = {}  # the last question when it was: answers up to that one are of another tenure
        self._dirty: dict[Place, None] = {}  # of which the leader does not know yet where this node is
        self._forgotten: dict[Place, None] = {}
        self._paused: dict[Place, float] = {}  # until when, after a failure
        self._damaged: dict[Place, None] = {}  # to be mended
        self._refused: dict[Place, int] = {}  # cuts of what is committed, and in which epoch
        self._changed = asyncio.Event()
        self._is_reached = True
        # Whoever has or waits for one keeps it: it is the same for all of them, and gone with the last.
        self._busy: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()
        self._appetites: dict[Place, int] = {}  # how much to ask for, of those that are far behind
        self.taken_bytes = 0  # of batches

    def put(self, partition: Partition) -> None:
        place = partition.topic, partition.index
        self._partitions[place] = partition
        self._put_at[place] = self._asked_count
        self._paused.pop(place, None)
        self._forgotten.pop(place, None)
        self._dirty[place] = None
        if partition.damaged_from is not None:
            self._damaged[place] = None
        self._changed.set()

    async def remove(self, partition: Partition) -> None:
        """When this returns nothing of the old leader is written any more."""
        place = partition.topic, partition.index
        if self._partitions.get(place) is partition:
            del self._partitions[place], self._put_at[place]
            self._dirty.pop(place, None)
            self._paused.pop(place, None)
            self._appetites.pop(place, None)
            self._refused.pop(place, None)
            self._forgotten[place] = None
            self._changed.set()
        async with self._turn(place):
            pass

    def _turn(self, place: Place) -> asyncio.Lock:
        return self._busy.setdefault(place, asyncio.Lock())

    def look_again(self, partition: Partition, *, is_counted_on: bool) -> None:
        """The catalogue has changed what it says of it: maybe it need not wait any more. Damage that was found meanwhile is mended when nobody counts
        on this replica any more."""
        place, now = (partition.topic, partition.index), asyncio.get_running_loop().time()
        if partition.damaged_from is not None and not is_counted_on:
            self._damaged[place] = None
            self._dirty[place] = None
            self._changed.set()
        if place in self._paused and self._throttle.until(*place, now) <= now:
            del self._paused[place]
            self._dirty[place] = None
            self._changed.set()

    # ---------------------------------------------------------------- asking

    async def run(self) -> None:
        asked: asyncio.Task[_Answer] | None = None
        try:
            while True:
                try:
                    asked = await self._one_round(asked)
                    self._is_reached = True
                except GoQueueError as error:
                    if self._is_reached and not isinstance(error, FetchSessionNotFound):
                        logger.info("a leader is not reached node=%d error=%r", self._leader, error.sentence)
                        self._is_reached = False
                    asked, self._round = None, 0
                    await self._until_changed(_PAUSE_S)
        finally:
            if asked is not None:
                asked.cancel()

    async def _one_round(self, asked: asyncio.Task[_Answer] | None) -> asyncio.Task[_Answer] | None:
        """Ask, and take the answer. Where something changes meanwhile the next round is asked for at once, which ends this
        one; that next one is given back."""
        if self._changed.is_set():
            await asyncio.sleep(_GATHER_S)
            self._changed.clear()
        if asked is None:
            if not self._partitions:
                await self._until_changed(None)
                return None
            await self._mend()
            asked = self._ask()
        changing = asyncio.ensure_future(self._changed.wait())
        following: asyncio.Task[_Answer] | None = None
        try:
            await asyncio.wait([asked, changing], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await asyncio.sleep(_GATHER_S)
                self._changed.clear()
                if not asked.done():
                    await self._mend()
                    following = self._ask()
            await self._take(await asked)
        except BaseException:
            for task in (asked, following):
                if task is not None:
                    task.cancel()
            await asyncio.gather(asked, *([following] if following else []), return_exceptions=True)
            raise
        finally:
            changing.cancel()
        return following

    async def _mend(self) -> None:
        """What is damaged is given up before the leader, which has it as it was, is told how far this node is."""
        damaged, self._damaged = self._damaged, {}
        for place in damaged:
            partition = self._partitions.get(place)
            if partition is None:
                continue
            async with self._turn(place):
                if self._partitions.get(place) is not partition or partition.damaged_from is None:
                    continue
                log = partition.log
                # Where compaction has been, others may have forgotten the tombstones of what is before the damage.
                offset = log.log_start if log.may_be_compacted else partition.damaged_from
                try:
                    await self._shorten(partition, offset, forced=True)
                    partition.damaged_from = None
                except GoQueueError as error:
                    self._damaged[place] = None
                    logger.warning(
                        "a partition is not mended topic=%s partition=%d error=%r", *place, error.sentence
                    )

    def _ask(self) -> asyncio.Task[_Answer]:
        now = asyncio.get_running_loop().time()
        for place in [place for place, until in self._paused.items() if until <= now]:
            del self._paused[place]
            self._dirty[place] = None
        places = self._partitions if self._round == 0 else self._dirty
        self._hold_back(list(places), now)
        wants = [
            _want(partition, self._throttle.bytes_max(*place, self._appetites.get(place, _BYTES_MIN)))
            for place in places
            if place not in self._paused and (partition := self._partitions.get(place)) is not None
        ]
        round = ReplicaRound(self._round, wants, list(self._forgotten) if self._round else ())
        self._dirty, self._forgotten = {}, {}
        self._round += 1
        self._asked_count += 1
        soonest = min(self._paused.values(), default=now + self._wait_ms / 1_000)
        wait_ms = max(1, min(self._wait_ms, int((soonest - now) * 1_000)))
        return asyncio.ensure_future(self._fetch(self._asked_count, round, wait_ms))

    def _hold_back(self, places: list[Place], now: float) -> None:
        """Those that are copied and have had their share for now, those that are damaged, which would be let in for what they had, and those
        that have more than is on disk: the leader compares what is on disk, and behind that may be what a leader before it never committed."""
        for place in places:
            partition = self._partitions.get(place)
            if partition is not None and partition.log.durable_end < partition.log.end:
                partition.commit.request()
                pause_s = _SYNC_S if partition.log.failure is None else _PAUSE_S
                self._paused.setdefault(place, now + pause_s)
            if partition is not None and partition.damaged_from is not None:
                self._paused[place] = now + _PAUSE_S
            until = self._throttle.until(*place, now)
            if until > now and place not in self._paused:
                self._paused[place] = until

    async def _fetch(self, number: int, round: ReplicaRound, wait_ms: int) -> _Answer:
        name = self._name_of(self._leader)
        if name is None:
            raise PeerUnreachable(f"node {self._leader} is not known")
        found = await self._links.fetch(name, round, wait_ms=wait_ms, bytes_max=self._bytes_max)
        return _Answer(number, found)

    async def _until_changed(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    # ---------------------------------------------------------------- taking

    async def _take(self, answer: _Answer) -> None:
        """Write everything, then wait until all of it is on disk, and where the logs begin."""
        written: list[Partition] = []
        shortened: list[Partition] = []
        for one in answer.found:
            place = one.topic, one.partition
            partition = self._partitions.get(place)
            if partition is None:
                continue
            async with self._turn(place):
                if self._partitions.get(place) is not partition:  # it follows another by now
                    continue
                if answer.number <= self._put_at[place]:  # or has meanwhile
                    continue
                try:
                    if await self._take_one(partition, one):
                        written.append(partition)
                    if partition.log.durable_start < one.log_start <= partition.log.log_start:
                        shortened.append(partition)
                    self._note_appetite(place, len(one.records))
                    if place not in self._paused:
                        self._dirty[place] = None
                except GoQueueError as error:
                    self._pause(place)
                    logger.warning(
                        "a partition is not replicated topic=%s partition=%d error=%r", *place, error.sentence
                    )
        for partition in written:
            partition.commit.request()  # all at once, then each is waited for
        for partition in written:
            await self._until_durable(partition, partition.commit.wait(partition.log.end))
        saving = [self._until_durable(partition, partition.commit.checkpoint()) for partition in shortened]
        await asyncio.gather(*saving)

    async def _until_durable(self, partition: Partition, wait: Coroutine[None, None, None]) -> None:
        try:
            await wait
        except GoQueueError as error:
            self._pause((partition.topic, partition.index))
            logger.warning("a replica is not on disk error=%r", error.sentence)

    def _note_appetite(self, place: Place, size_bytes: int) -> None:
        """Who gets all that it asks for is behind, and asks for more."""
        appetite = self._appetites.get(place, _BYTES_MIN)
        if 2 * size_bytes >= appetite:
            self._appetites[place] = min(2 * appetite, max(_BYTES_MIN, self._bytes_max))
        else:
            self._appetites.pop(place, None)

    def _pause(self, place: Place) -> None:
        self._paused[place] = asyncio.get_running_loop().time() + _PAUSE_S
        self._dirty.pop(place, None)

    async def _take_one(self, partition: Partition, found: ReplicaFound) -> bool:
        """Whether something was written."""
        log = partition.log
        if isinstance(found.error, OffsetOutOfRange) and found.log_start > log.end:
            await self._begin_at(partition, found.log_start)
            return False
        if found.error is not None:
            self._pause((partition.topic, partition.index))
            return False
        if found.diverging is not None:
            await self._cut(partition, *found.diverging)
            return False
        has_written = False
        if found.records:
            now = asyncio.get_running_loop().time()
            self._throttle.took(partition.topic, partition.index, len(found.records), now)
            self.taken_bytes += len(found.records)
            has_written = await self._write(partition, memoryview(found.records))
        partition.note_watermark(found.high_watermark)
        if log.log_start < found.log_start <= log.high_watermark:
            move_start(partition, found.log_start)
        return has_written

    async def _write(self, partition: Partition, data: memoryview) -> bool:
        at, log = 0, partition.log
        now_ms = self._clock.now_ms()
        has_written = False
        while len(data) - at >= HEADER_BYTES:
            header = read_header(data, at)
            if len(data) - at < header.size:
                break
            batch = data[at : at + header.size]
            at += header.size
            if header.end_offset <= log.end:  # the first batch may begin before what was asked for
                continue
            if header.base_offset < log.end:  # the leader has compacted, or begins in the middle of a batch
                await self._shorten(partition, header.base_offset, forced=True)
            if header.leader_epoch > partition.leader_epoch:
                raise StorageError(
                    f"the leader of {partition.topic}-{partition.index} in epoch {partition.leader_epoch} sent what was written in epoch "
                    f"{header.leader_epoch}"
                )
            if not crc_matches(batch, 0, header) or header.base_offset != log.end:
                raise StorageError(
                    f"the leader of {partition.topic}-{partition.index} sent a batch at offset {header.base_offset} that is "
                    f"damaged or does not follow {log.end}"
                )
            if header.leader_epoch != log.epochs.current or log.durable_epoch != header.leader_epoch:
                log.adopt_epoch(header.leader_epoch, log.end)
                await partition.commit.checkpoint()
            partition.replicate(batch, header, now_ms=now_ms)
            has_written = True
        return has_written

    async def _cut(self, partition: Partition, epoch: int, end: int) -> None:
        """To where both logs are the same for sure; the next fetch says whether that was far enough. What is committed is
        never cut, unless all of it is from before an election that may have lost some of it."""
        log = partition.log
        is_lost = self._unclean_epoch_of(partition.topic, partition.index) > log.epochs.current
        before, offset = log.end, log.epochs.common_end(epoch, end, log.end)
        try:
            await self._shorten(partition, offset, forced=is_lost)
        except CutRefused as error:
            self._leave_whole(partition, error)
            return
        logger.info(
            "a replica is cut topic=%s partition=%d from=%d to=%d epoch=%d",
            *(partition.topic, partition.index, before, offset, epoch),
        )

    def _leave_whole(self, partition: Partition, error: CutRefused) -> None:
        """The leader lacks what is committed, which cannot be: this replica may be the last that has it. It waits for another leader,
        and everything else goes on."""
        place = partition.topic, partition.index
        self._paused[place] = asyncio.get_running_loop().time() + _REFUSED_S
        self._dirty.pop(place, None)
        if self._refused.get(place) != partition.leader_epoch:
            self._refused[place] = partition.leader_epoch
            logger.error(
                "a leader lacks what is committed; its follower keeps that and waits topic=%s partition=%d leader=%d epoch=%d error=%r",
                *(*place, self._leader, partition.leader_epoch, str(error)),
            )

    async def _shorten(self, partition: Partition, offset: int, *, forced: bool) -> None:
        log = partition.log
        async with partition.rewriting, partition.indexing, partition.commit.held():
            try:
                await self._threads.run(
                    lambda: cut_back(log, self._disk, partition.owner, offset, forced=forced)
                )
            except OSError as error:
                raise StorageError(f"cutting {log.folder} failed: {error}") from error

    async def _begin_at(self, partition: Partition, offset: int) -> None:
        """Everything that it has is gone from its leader."""
        log = partition.log
        logger.info(
            "a replica begins anew topic=%s partition=%d end=%d at=%d",
            *(partition.topic, partition.index, log.end, offset),
        )
        async with partition.rewriting, partition.indexing, partition.commit.held():
            try:
                await self._threads.run(lambda: reset_log(log, self._disk, partition.owner, offset))
            except OSError as error:
                raise StorageError(f"emptying {log.folder} failed: {error}") from error


def _want(partition: Partition, bytes_max: int) -> ReplicaWant:
    log = partition.log
    offset = log.durable_end
    last = log.epochs.at(offset - 1) if offset > log.log_start else None
    return ReplicaWant(
        partition.topic,
        partition.index,
        offset,
        _NO_EPOCH if last is None else last,
        partition.leader_epoch,
        log.durable_start,
        bytes_max,
    )
