"""The producers of one partition: each batch is stored once, and every transaction has one beginning and one end.

A producer numbers its records per partition. The table remembers, for each producer, its epoch, its last five
batches (as many as a Kafka client may have in flight) and where its open transaction began. `decide` reads and
`apply` alone changes: it is called after the append succeeded, and again for every batch and marker that recovery
finds, so a sequence is consumed only if its records are in the log.

A marker ends the transaction of its producer. Until the marker is committed the transaction stays in the way of readers of
committed records: a leader that comes without the marker would take back what they were told. With KIP-890 it carries an epoch one above that of the transaction:
from then on whatever the old epoch still sends is refused, and the next batch begins at sequence 0.

What a partition sends on to the home of its keys (ADR 35) comes under an id of its own, made of the producer's and of the
partition it came through, with the sequences that it had there. So there are gaps, and whatever is not above the newest
is a repetition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from goqueue.model.cluster_errors import CoordinatorFenced
from goqueue.model.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from goqueue.model.record import Producer

BATCH_COUNT_KEPT = 5
PRODUCER_COUNT_MAX = 100_000
IDLE_MS_MAX = 7 * 24 * 3_600_000
NO_COORDINATOR = -1
NO_SEQUENCE = -1
_SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap from 2**31 - 1 to 0
_RELAYED = 1 << 62  # the bit that ids of what is sent on have, and no other
_ID_BITS = 42
_PARTITION_BITS = 62 - _ID_BITS
PRODUCER_ID_MAX = (1 << _ID_BITS) - 1  # of those who write to topics whose partitions send on
RELAYING_PARTITION_MAX = (1 << _PARTITION_BITS) - 1


class Appended(Struct, frozen=True, array_like=True):
    """The event: a producer's batch is in the log."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int
    is_transactional: bool = False


class Completed(Struct, frozen=True, array_like=True):
    """The event: the marker that ends a producer's transaction is in the log."""

    producer_id: int
    epoch: int
    offset: int
    is_commit: bool
    coordinator_epoch: int
    timestamp_ms: int


Event = Appended | Completed


class ProducerEntry(Struct, array_like=True):
    """What is known of one producer. `batches` are those of its epoch, the newest last."""

    producer_id: int
    epoch: int
    timestamp_ms: int
    batches: tuple[Appended, ...] = ()
    transaction_start: int | None = None
    coordinator_epoch: int = NO_COORDINATOR  # of the newest marker

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was stored before, from this offset on."""

    base_offset: int


class Fresh:
    """The batch is the next in line."""


FRESH = Fresh()
Verdict = Fresh | Duplicate


def last_sequence(first: int, record_count: int) -> int:
    return (first + record_count - 1) & _SEQUENCE_MASK


def next_sequence(first: int, record_count: int) -> int:
    return (first + record_count) & _SEQUENCE_MASK


def is_after(sequence: int, other: int) -> bool:
    """Sequences wrap: of two that differ, the later one is less than half of them ahead."""
    return 0 < (sequence - other) & _SEQUENCE_MASK <= _SEQUENCE_MASK >> 1


def relayed_id(producer_id: int, partition: int) -> int:
    """Under which a partition sends on what the producer sent to it. Both must be within their bounds."""
    return _RELAYED | partition << _ID_BITS | producer_id


def is_relayed(producer_id: int) -> bool:
    return producer_id >= _RELAYED


def origin_of(relayed: int) -> tuple[int, int]:
    """The producer's own id, and the partition that it came through."""
    return relayed & PRODUCER_ID_MAX, (relayed & ~_RELAYED) >> _ID_BITS


class Ended(Struct, frozen=True, array_like=True):
    """A transaction whose marker is in the log, and may not be committed."""

    marker: int
    start: int


class ProducerTable:
    def __init__(self, entries: Iterable[ProducerEntry] = (), ended: Iterable[Ended] = ()) -> None:
        # In order of last use, so that the longest idle is the first to go.
        self._producers = {entry.producer_id: entry for entry in entries}
        # Start offset to producer. They begin in the order of their offsets, so the first is the oldest.
        self._open: dict[int, int] = dict(
            sorted(
                (entry.transaction_start, entry.producer_id)
                for entry in self._producers.values()
                if entry.transaction_start is not None
            )
        )
        self._ended = deque(ended)  # in the order of their markers
        # Where those that are open and those that have ended began, the oldest first.
        self._unstable = dict.fromkeys(sorted([*self._open, *(one.start for one in self._ended)]))

    # ---------------------------------------------------------------- deciding

    def decide(self, producer: Producer, record_count: int, *, is_transactional: bool = False) -> Verdict:
        """Whether to append; raises where the producer is fenced, a batch is missing before this one, or it would be a
        plain one in the middle of a transaction."""
        entry = self._producers.get(producer.id)
        if entry is None:  # unknown or forgotten: it starts wherever it says
            return FRESH
        if producer.epoch < entry.epoch:
            raise _fenced(producer.id, producer.epoch, entry.epoch)
        batches = entry.batches if producer.epoch == entry.epoch else ()
        if is_relayed(producer.id):
            return _decide_relayed(batches, producer.sequence)
        first, last = producer.sequence, last_sequence(producer.sequence, record_count)
        for batch in batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return Duplicate(batch.base_offset)
        if entry.transaction_start is not None and not is_transactional:
            raise InvalidTransactionState(
                f"producer {producer.id} has an open transaction since offset {entry.transaction_start}; "
                "its batches must be transactional until it has ended",
                producer_id=producer.id,
                epoch=producer.epoch,
                transaction_start=entry.transaction_start,
            )
        _expect(producer, (batches[-1].last_sequence + 1) & _SEQUENCE_MASK if batches else 0)
        return FRESH

    def decide_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_epoch_bumped: bool = False,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Raises if the marker comes from the past, be it the producer's or the coordinator's: one that was replaced does
        not know what its successor has decided since. One for a producer without an open transaction is fine: the
        coordinator writes it again when it does not know whether the first arrived.

        With transaction version 2 (`is_epoch_bumped`) the coordinator ends a transaction of epoch e by a marker of epoch
        e + 1. One that is not above the open transaction's epoch is a late copy of the marker before, and would end
        the wrong transaction."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        if coordinator_epoch is not None and coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(
                f"producer {producer_id} has a marker of coordinator epoch {entry.coordinator_epoch}; {coordinator_epoch} is "
                "fenced",
                producer_id=producer_id,
                coordinator_epoch=coordinator_epoch,
                current_epoch=entry.coordinator_epoch,
            )
        is_late_copy = is_epoch_bumped and epoch == entry.epoch and entry.transaction_start is not None
        if epoch < entry.epoch or is_late_copy:
            raise _fenced(producer_id, epoch, entry.epoch)

    # ---------------------------------------------------------------- applying

    def apply(self, event: Event) -> None:
        id = event.producer_id
        entry = self._producers.pop(id, None)
        if entry is None:
            entry = ProducerEntry(id, event.epoch, event.timestamp_ms)
        elif entry.epoch != event.epoch:
            entry.epoch, entry.batches = event.epoch, ()
        self._producers[id] = entry
        entry.timestamp_ms = event.timestamp_ms
        if isinstance(event, Completed):
            self._complete(entry, event)
        else:
            entry.batches = (*entry.batches[1 - BATCH_COUNT_KEPT :], event)
            if event.is_transactional and entry.transaction_start is None:
                entry.transaction_start = event.base_offset
                self._open[event.base_offset] = id
                self._unstable[event.base_offset] = None
        if len(self._producers) > PRODUCER_COUNT_MAX:
            self._forget_longest_idle()

    def _complete(self, entry: ProducerEntry, event: Completed) -> None:
        entry.coordinator_epoch = event.coordinator_epoch
        if entry.transaction_start is not None:
            del self._open[entry.transaction_start]
            self._ended.append(Ended(event.offset, entry.transaction_start))
            entry.transaction_start = None

    def _forget_longest_idle(self) -> None:
        """Never one with an open transaction: its end would find no beginning."""
        idle = (id for id, entry in self._producers.items() if entry.transaction_start is None)
        id = next(idle, None)
        if id is not None:
            del self._producers[id]

    def settle(self, high_watermark: int) -> None:
        """Everything before it is committed: transactions that ended there are out of the way."""
        while self._ended and self._ended[0].marker < high_watermark:
            del self._unstable[self._ended.popleft().start]

    def expire(self, now_ms: int) -> None:
        """Forget producers that have been idle for a week, but none with an open transaction."""
        idle = [
            id
            for id, entry in self._producers.items()
            if now_ms - entry.timestamp_ms > IDLE_MS_MAX and entry.transaction_start is None
        ]
        for id in idle:
            del self._producers[id]

    # ---------------------------------------------------------------- facts

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._open), None)

    def first_unstable_offset(self) -> int | None:
        """Where the oldest one began that is open, or whose marker was not committed when this was `settle`d last."""
        return next(iter(self._unstable), None)

    def ended(self) -> list[Ended]:
        return list(self._ended)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        """The whole state, in order of last use; a table of these is this one. Not to be changed."""
        return list(self._producers.values())

    def open_entries(self) -> list[ProducerEntry]:
        """Those with an open transaction, in order of its start."""
        return [self._producers[id] for id in self._open.values()]


def _decide_relayed(batches: tuple[Appended, ...], first: int) -> Verdict:
    """By the newest alone: those before it were above each other."""
    if not batches:
        return FRESH
    newest = batches[-1]
    if is_after(first, newest.last_sequence):
        return FRESH
    known = (batch for batch in batches if batch.first_sequence == first)
    return Duplicate(next(known, newest).base_offset)


def _expect(producer: Producer, sequence: int) -> None:
    if producer.sequence != sequence:
        raise OutOfOrderSequence(
            f"producer {producer.id} (epoch {producer.epoch}) sent sequence {producer.sequence}; "
            f"the next is {sequence}",
            producer_id=producer.id,
            epoch=producer.epoch,
            sequence=producer.sequence,
            expected=sequence,
        )


def _fenced(producer_id: int, epoch: int, current_epoch: int) -> ProducerFenced:
    return ProducerFenced(
        f"producer {producer_id} has epoch {current_epoch} by now; epoch {epoch} is fenced",
        producer_id=producer_id,
        epoch=epoch,
        current_epoch=current_epoch,
    )
