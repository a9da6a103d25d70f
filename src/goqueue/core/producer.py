"""Idempotent producers of one partition: each batch is stored once, however often it is sent.

A producer numbers its records per partition. The table remembers, for each producer, its epoch and its last
five batches (as many as a Kafka client may have in flight). `decide` reads and `apply` alone changes: it is
called after the append succeeded, and again for every batch that recovery finds, so a sequence is consumed
only if its records are in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from goqueue.model.errors import OutOfOrderSequence, ProducerFenced
from goqueue.model.record import Producer

BATCH_COUNT_KEPT = 5
PRODUCER_COUNT_MAX = 100_000
IDLE_MS_MAX = 7 * 24 * 3_600_000
_SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap from 2**31 - 1 to 0


class Appended(Struct, frozen=True, array_like=True):
    """The event: a producer's batch is in the log."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


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


class ProducerTable:
    def __init__(self) -> None:
        # In order of last use, so that the longest idle is the first to go. Newest batch last.
        self._batches: dict[int, tuple[Appended, ...]] = {}

    def decide(self, producer: Producer, record_count: int) -> Verdict:
        """Whether to append; raises where the producer is fenced or a batch is missing before this one."""
        batches = self._batches.get(producer.id)
        if batches is None:  # unknown or forgotten: it starts wherever it says
            return FRESH
        latest = batches[-1]
        if producer.epoch < latest.epoch:
            raise ProducerFenced(
                f"producer {producer.id} has epoch {latest.epoch} by now; epoch {producer.epoch} is fenced",
                producer_id=producer.id,
                epoch=producer.epoch,
                current_epoch=latest.epoch,
            )
        if producer.epoch > latest.epoch:
            return self._expect(producer, 0)
        last = last_sequence(producer.sequence, record_count)
        for batch in batches:
            if batch.epoch == producer.epoch and (batch.first_sequence, batch.last_sequence) == (
                producer.sequence,
                last,
            ):
                return Duplicate(batch.base_offset)
        return self._expect(producer, (latest.last_sequence + 1) & _SEQUENCE_MASK)

    def _expect(self, producer: Producer, sequence: int) -> Fresh:
        if producer.sequence != sequence:
            raise OutOfOrderSequence(
                f"producer {producer.id} (epoch {producer.epoch}) sent sequence {producer.sequence}; "
                f"the next is {sequence}",
                producer_id=producer.id,
                epoch=producer.epoch,
                sequence=producer.sequence,
                expected=sequence,
            )
        return FRESH

    def apply(self, event: Appended) -> None:
        before = self._batches.pop(event.producer_id, ())
        if before and before[-1].epoch != event.epoch:
            before = ()
        self._batches[event.producer_id] = (*before[1 - BATCH_COUNT_KEPT :], event)
        if len(self._batches) > PRODUCER_COUNT_MAX:
            del self._batches[next(iter(self._batches))]

    def expire(self, now_ms: int) -> None:
        """Forget producers that have been idle for a week."""
        idle = [
            id for id, batches in self._batches.items() if now_ms - batches[-1].timestamp_ms > IDLE_MS_MAX
        ]
        for id in idle:
            del self._batches[id]

    def events(self) -> list[Appended]:
        """Applied in order to an empty table they give this one."""
        return [event for batches in self._batches.values() for event in batches]
