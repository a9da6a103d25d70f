"""What a partition tells of a producer to whoever asks."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.core.producer import ProducerEntry


class ProducerFacts(NamedTuple):
    """A producer that this partition knows; -1 for what it has not done yet."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int
    coordinator_epoch: int


def facts_of(entry: ProducerEntry) -> ProducerFacts:
    return ProducerFacts(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.timestamp_ms,
        -1 if entry.transaction_start is None else entry.transaction_start,
        entry.coordinator_epoch,
    )
