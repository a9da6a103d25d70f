"""Batches of idempotent producers that come before the one they should follow.

In a cluster that one may have been refused by the leader before, and be on its way here. librdkafka, told that its batch is out of order,
numbers everything anew, in other partitions too (its issue 4953): whatever was stored there, and whose answer was lost, is stored
twice. So for a while it is told to try again.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from goqueue.core.producer import is_after
from goqueue.model.errors import GoQueueError, NotEnoughReplicas
from goqueue.model.record import Producer
from goqueue.node.partition import Partition

_PATIENCE_MS: Final = 5_000  # longer than a client takes to come back with it
_PRODUCER_COUNT_MAX: Final = 1_000


class MissingBatches:
    """Of all partitions."""

    def __init__(self) -> None:
        self._by_partition: WeakKeyDictionary[Partition, dict[int, tuple[int, int, int]]] = (
            WeakKeyDictionary()
        )  # of each producer its epoch, what is stored of it, and since when something after that is refused

    def refusal(self, partition: Partition, producer: Producer, now_ms: int) -> GoQueueError | None:
        """Of a batch that is out of order: what to tell its producer where what is missing may still come."""
        newest = partition.newest_sequence(producer.id, producer.epoch)
        if partition.is_solo or newest is None or newest < 0 or not is_after(producer.sequence, newest):
            return None
        known = self._by_partition.setdefault(partition, {})
        epoch, stored, since_ms = known.pop(producer.id, (producer.epoch, newest, now_ms))
        if (epoch, stored) != (producer.epoch, newest):
            since_ms = now_ms
        known[producer.id] = producer.epoch, newest, since_ms
        if len(known) > _PRODUCER_COUNT_MAX:
            del known[next(iter(known))]
        if now_ms - since_ms >= _PATIENCE_MS:
            return None
        return NotEnoughReplicas(
            f"{partition.topic}-{partition.index} has what producer {producer.id} sent up to sequence {newest}; what comes before "
            f"sequence {producer.sequence} is missing, and comes first",
            producer_id=producer.id,
            sequence=producer.sequence,
        )
