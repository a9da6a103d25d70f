"""A ledger has lost events to damage. What they may have held is looked up in the logs that know: the partition itself, and
the topics that its records are moved to."""

from __future__ import annotations

import logging
from typing import Final

from goqueue.core.lease.damage import Damage, Met, spanned
from goqueue.core.lease.events import Target
from goqueue.core.producer import next_sequence
from goqueue.log.batch import decode_batch
from goqueue.log.lane_scan import lane_of_headers
from goqueue.model.errors import DataCorrupt
from goqueue.node.partition import Partition
from goqueue.node.queue.feed import key_of
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_LOOK_COUNT_MAX: Final = 200_000  # offsets; a poll leases a thousand at the most
_FETCH_BYTES: Final = 1024 * 1024
_SEQUENCES_HALF: Final = 2**30  # what is less far ahead is ahead


async def mend(ledger: OwnedLedger, table: TopicTable, now_ms: int) -> None:
    """After every replay: the end of a log may be cut off without a hole."""
    source, damage, sequences = ledger.source, ledger.state.damage, _sequences(ledger, table)
    if ledger.cut():
        logger.error(
            "a partition ends before what its groups have read topic=%s partition=%d end=%d",
            *(source.topic, source.index, source.log.end),
        )
        await ledger.ready()  # it must be known before others come in the place of what is lost
        await ledger.settled()
    if damage is None and not sequences:
        return
    damage = damage or Damage()
    await ledger.catch_up()  # else what the partition holds could not be read to its end
    count = ledger.mend(damage, await _found(source, damage), sequences, now_ms)
    logger.error(
        "a ledger has lost events topic=%s partition=%d lost=%d given_again=%d moved_unknown=%d",
        *(source.topic, source.index, damage.lost_count, count, len(sequences)),
    )


async def _found(source: Partition, damage: Damage) -> list[Met] | None:
    """The records where the damage leaves doubt; None if they are too many."""
    doubts = damage.doubts()
    if not doubts:
        return []
    start, end = spanned(doubts)
    start, end = max(start, source.log.log_start), min(end, source.last_stable_offset)
    if end - start > _LOOK_COUNT_MAX:
        return None
    found: list[Met] = []
    while start < end:
        try:
            part = await source.read(start, end=end, bytes_max=_FETCH_BYTES)
        except DataCorrupt as error:  # nobody can have those
            start = error.end
            continue
        aborted = source.aborted_spans(start, part.next_offset)
        for batch in part.batches:
            if not batch.header.is_control and not aborted.cover(batch.header):
                found += [
                    Met(record.offset, lane_of_headers(record.headers), key_of(record))
                    for record in decode_batch(batch.data, batch.header)
                ]
        start = part.next_offset
    return found


def _sequences(ledger: OwnedLedger, table: TopicTable) -> dict[Target, int]:
    """Of targets here that have more from this ledger than it knows of. What it moves next must not pass for that."""
    producer, known = ledger.state.producer, ledger.state.sequences
    if producer is None:
        return {}
    found: dict[Target, int] = {}
    for topic in table.all():
        for partition in topic.partitions:
            if not partition.is_solo and partition.leadership is None:
                continue  # a follower may know more than is committed
            newest = partition.newest_sequence(*producer)
            if newest is None:
                continue
            target, expected = Target(partition.topic, partition.index), next_sequence(newest, 1)
            if 0 < next_sequence(expected, -known.get(target, 0)) <= _SEQUENCES_HALF:
                found[target] = expected
    return found
