"""What idempotent producers sent to a partition, and this node refused for now.

A producer has several batches under way. If one is refused because the leader cannot write at that moment, and the next one comes
when it can again, that one's number is out of order. librdkafka then numbers everything anew, also what is stored and whose answer
was lost: that is stored twice. So whatever comes after a refused batch is refused like it, until that one is back.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from goqueue.core.producer import is_after
from goqueue.log.batch import HEADER_BYTES, NO_PRODUCER, read_header
from goqueue.model.errors import NotEnoughReplicas
from goqueue.model.record import Producer
from goqueue.node.partition import Partition

# A producer that has not come back with it for so long does not mean to.
_FORGET_MS: Final = 30_000
_PRODUCER_COUNT_MAX: Final = 1_000
_SEQUENCE_COUNT_MAX: Final = 16  # more than any client has under way


class RefusedBatches:
    """Of all partitions."""

    def __init__(self) -> None:
        self._by_partition: WeakKeyDictionary[Partition, _OfPartition] = WeakKeyDictionary()

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def note(self, partition: Partition, batch: bytes, now_ms: int) -> None:
        """It was refused, and its producer will send it again."""
        producer = producer_of(batch)
        if producer.id != NO_PRODUCER:
            self._by_partition.setdefault(partition, _OfPartition()).note(producer, now_ms)

    def check(self, partition: Partition, batch: bytes, now_ms: int) -> None:
        """Raises where one that comes before it was refused and is not back."""
        known, producer = self._by_partition.get(partition), producer_of(batch)
        if known is None:
            return
        newest = partition.newest_sequence(producer.id, producer.epoch)
        if known.has_one_before(producer, newest, now_ms):
            raise NotEnoughReplicas(
                f"a batch that producer {producer.id} sent to {partition.topic}-{partition.index} before sequence "
                f"{producer.sequence} was refused; it comes first",
                producer_id=producer.id,
                sequence=producer.sequence,
            )

    def taken(self, partition: Partition, batch: bytes) -> None:
        known = self._by_partition.get(partition)
        if known is not None:
            known.taken(producer_of(batch))
            if not known.producers:
                del self._by_partition[partition]


class _Refused:
    __slots__ = ("epoch", "sequences")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sequences: dict[int, int] = {}  # with which the batches begin, and when they were refused last


class _OfPartition:
    def __init__(self) -> None:
        self.producers: dict[int, _Refused] = {}  # who was refused last comes last

    def note(self, producer: Producer, now_ms: int) -> None:
        refused = self.producers.pop(producer.id, None)
        if refused is None or refused.epoch != producer.epoch:
            refused = _Refused(producer.epoch)
        self.producers[producer.id] = refused
        refused.sequences[producer.sequence] = now_ms
        if len(refused.sequences) > _SEQUENCE_COUNT_MAX:
            del refused.sequences[next(iter(refused.sequences))]
        if len(self.producers) > _PRODUCER_COUNT_MAX:
            del self.producers[next(iter(self.producers))]

    def has_one_before(self, producer: Producer, newest: int | None, now_ms: int) -> bool:
        """`newest` is the last sequence that is stored: another leader may have taken what this one refused."""
        refused = self.producers.get(producer.id)
        if refused is None or refused.epoch != producer.epoch:
            return False
        refused.sequences = {
            one: at_ms
            for one, at_ms in refused.sequences.items()
            if now_ms - at_ms <= _FORGET_MS and (newest is None or newest < 0 or is_after(one, newest))
        }
        return any(is_after(producer.sequence, one) for one in refused.sequences)

    def taken(self, producer: Producer) -> None:
        refused = self.producers.get(producer.id)
        if refused is not None:
            refused.sequences.pop(producer.sequence, None)
            if not refused.sequences or refused.epoch != producer.epoch:
                del self.producers[producer.id]


def producer_of(batch: bytes) -> Producer:
    if len(batch) < HEADER_BYTES:
        return Producer(NO_PRODUCER, -1, -1)
    header = read_header(batch)
    return Producer(header.producer_id, header.producer_epoch, header.base_sequence)
