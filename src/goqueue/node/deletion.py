"""Deleting records from the beginning of a partition by request. It is for good: whoever leads the partition next begins there, too, so it is
acknowledged when that is on the disk of every replica that may."""

from __future__ import annotations

import logging
from typing import Final

from goqueue.model.cluster_errors import ReplicationUnknown
from goqueue.model.errors import OffsetOutOfRange, PartitionOffline, TimedOut, TopicNotFound
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition

logger = logging.getLogger(__name__)
HIGH_WATERMARK: Final = -1  # as the offset to delete records before


async def delete_records(partition: Partition, before_offset: int, metrics: Metrics) -> int:
    """Where the partition begins then. What begins later already stays as it is. May be repeated."""
    partition.check_leads()
    await partition.lead()
    under = partition.leadership
    _delete_here(partition, before_offset, metrics)
    await partition.commit.checkpoint()  # also if nothing moved: an earlier attempt may not be on disk
    start = partition.log.durable_start
    if under is None:
        return start
    if under is not partition.leadership:
        raise _unknown(partition, start)
    waiting = partition.starting.add(start, gives_up=True)
    under.deleted(partition, start)
    try:
        await partition.commit.in_time(waiting)
    except TimedOut as error:
        raise _unknown(partition, start) from error
    return start


def move_start(partition: Partition, offset: int) -> None:
    log = partition.log
    if partition.rewriting.locked():
        # The segments stay until retention comes by: compaction rewrites them.
        log.log_start = offset
        log.epochs.forget_before(offset)
    else:
        log.delete_before(offset)


def _delete_here(partition: Partition, before_offset: int, metrics: Metrics) -> None:
    log = partition.log
    if partition.is_deleted:
        raise TopicNotFound(partition.topic)
    if log.failure is not None:
        raise PartitionOffline(f"{log.folder} takes no changes: {log.failure}", folder=log.folder)
    offset = log.high_watermark if before_offset == HIGH_WATERMARK else before_offset
    if not 0 <= offset <= log.high_watermark:
        raise OffsetOutOfRange(offset, earliest=log.log_start, latest=log.high_watermark)
    if offset <= log.log_start:
        return
    size_before = log.size_bytes
    move_start(partition, offset)
    metrics.deleted_bytes.inc(size_before - log.size_bytes)
    logger.info("records deleted folder=%s log_start=%d", log.folder, offset)


def _unknown(partition: Partition, start: int) -> ReplicationUnknown:
    return ReplicationUnknown(
        f"whether every replica of {partition.topic}-{partition.index} has deleted what is before {start} is not known; ask again",
        topic=partition.topic,
        partition=partition.index,
    )
