"""One partition of an internal topic, and the state that it owns.

Events go in as keyed records: the topic is compacted, so of each key only the newest event stays and a start replays
about as much as there is state. The events of one decision are one batch: after a crash all of them are there or none.

In a cluster the state belongs to one leadership of the partition. When that is over nothing is written any more, and
nothing that was written counts as durable: what the log holds now may be another leader's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from goqueue.log.batch import decode_batch, encode_batch
from goqueue.model.cluster_errors import NotCoordinator, NotLeader, ReplicationUnknown
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    DataCorrupt,
    DiskFull,
    PartitionOffline,
    StorageError,
    TimedOut,
)
from goqueue.model.record import NewRecord
from goqueue.node.clock import Clock
from goqueue.node.partition import Leadership, Partition

logger = logging.getLogger(__name__)
_FETCH_BYTES = 1024 * 1024

E = TypeVar("E")


@contextmanager
def available(coordinator: str) -> Iterator[None]:
    """A client of a coordinator does not care which log failed, but whether it may try again."""
    try:
        yield
    except (StorageError, DiskFull, PartitionOffline, TimedOut, DataCorrupt) as error:
        raise CoordinatorNotAvailable(
            f"the {coordinator} cannot use its log: {error.sentence}", **error.details
        ) from error


@contextmanager
def coordinating(coordinator: str) -> Iterator[None]:
    """As `available`; and where another node leads the log by now, that one is the coordinator."""
    try:
        with available(coordinator):
            yield
    except (NotLeader, ReplicationUnknown) as error:
        raise NotCoordinator(
            f"another node is the {coordinator} by now: {error.sentence}", **error.details
        ) from error


class EventCodec(Protocol[E]):
    """A value of None is a tombstone: the key is gone."""

    def encode(self, event: E) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> E: ...


class StateLog(Generic[E]):
    def __init__(
        self, partition: Partition, codec: EventCodec[E], clock: Clock, leadership: Leadership | None = None
    ) -> None:
        """`leadership` is the one that the state belongs to; None: whichever there is, or this node is alone."""
        self._partition = partition
        self._codec = codec
        self._clock = clock
        self._leadership = leadership
        self.replayed_offset = -1  # of the event that is being replayed

    async def replay(
        self, apply: Callable[[E], None], interrupt: Callable[[int], None] | None = None
    ) -> None:
        """Every event in the log, oldest first, also those that are not committed yet. Damage is passed over and reported:
        a power cut may tear a batch that was never acknowledged, and whoever owns the state must come up all the same.
        Where the newest event of each key counts, what a damaged batch held is gone and nothing else is wrong; where
        events build on each other, `interrupt` says how many are missing."""
        leadership = self._current()
        log = self._partition.log
        offset = log.log_start
        while offset < log.end:
            try:
                part = await self._partition.read(offset, end=log.end, bytes_max=_FETCH_BYTES, is_own=True)
            except DataCorrupt as error:
                self._check(leadership)
                logger.error("events of an internal log are lost detail=%r", error.sentence)
                lost_count, offset = error.end - offset, error.end
                if interrupt is not None:
                    interrupt(lost_count)
                continue
            self._check(leadership)
            for batch in part.batches:
                for record in decode_batch(batch.data, batch.header):
                    if record.key is None:
                        raise StorageError(f"{log.folder} has an event without a key at {record.offset}")
                    self.replayed_offset = record.offset
                    apply(self._codec.decode(record.key, record.value))
            offset = part.next_offset

    async def lead(self) -> None:
        """Once per start or leadership, before the first `append`."""
        await self._partition.lead()
        self._check(self._current())

    def append(self, events: Sequence[E]) -> None:
        """In one batch. Where this raises nothing was written."""
        if not events:
            return
        self._check(self._current())
        now_ms = self._clock.now_ms()
        records = [NewRecord(*self._codec.encode(event)) for event in events]
        header, batch = encode_batch(records, now_ms)
        self._partition.append(batch, header, now_ms=now_ms)

    @property
    def is_over(self) -> bool:
        """The leadership that the state belongs to has ended."""
        partition = self._partition
        return not partition.is_solo and partition.leadership is not self._current()

    @property
    def is_settled(self) -> bool:
        """Everything that was written is on enough replicas."""
        return self._partition.log.high_watermark >= self._partition.log.end

    @property
    def is_stuck(self) -> bool:
        """Nobody can say when what is written now will be."""
        leadership = self._partition.leadership
        return leadership is not None and (leadership.is_cut_off or not leadership.has_enough)

    async def settled(self, *, gives_up: bool = False) -> None:
        """Until everything appended so far is on disk, and on enough replicas, however long it takes; raises if it never
        will be, or nobody here will ever know. Who `gives_up` also hears that this node is cut off: then the state is
        still that of the log."""
        leadership = self._current()
        end = self._partition.log.end
        while True:
            self._check_same(leadership)
            try:
                await self._partition.settled(end, under=leadership, gives_up=gives_up)
                return self._check_same(leadership)
            except TimedOut as error:
                logger.warning("an internal log is slow error=%r", error.sentence)

    def _check_same(self, leadership: Leadership | None) -> None:
        """What was written under it may count and may not: that is another error than for what was never written."""
        try:
            self._check(leadership)
        except NotLeader as error:
            raise ReplicationUnknown(
                f"{error.sentence}; whether the last changes count is not known", **error.details
            ) from error

    def _current(self) -> Leadership | None:
        return self._leadership or self._partition.leadership

    def _check(self, leadership: Leadership | None) -> None:
        partition = self._partition
        if not partition.is_solo and (leadership is None or partition.leadership is not leadership):
            raise NotLeader(partition.topic, partition.index, partition.leader)
