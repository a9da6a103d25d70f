"""Which part of a log has outlived its time or its size. Whole segments go, oldest first, never past the
high watermark and never the one that is written to."""

from __future__ import annotations

from goqueue.log.partition_log import PartitionLog
from goqueue.log.segment import Segment
from goqueue.model.settings import UNLIMITED


def is_active_expired(log: PartitionLog, now_ms: int) -> bool:
    """Whether everything in the active segment is too old. It must be sealed before it can go."""
    active = log.segments[-1] if log.segments else None
    return (
        active is not None
        and active.size > 0
        and log.settings.cleanup_policy.deletes
        and _is_expired(log, active, now_ms)
    )


def retention_start(log: PartitionLog, now_ms: int) -> int:
    """Where the log should start. Reads indexes, so it may block."""
    settings = log.settings
    start = log.log_start
    if not settings.cleanup_policy.deletes:
        return start
    excess_bytes = log.size_bytes - settings.retention_bytes if settings.retention_bytes != UNLIMITED else 0
    for segment in log.segments[:-1]:
        if segment.end_offset > log.high_watermark:
            break
        if excess_bytes < segment.size and not _is_expired(log, segment, now_ms):
            break
        start = max(start, segment.end_offset)
        excess_bytes -= segment.size
    return start


def _is_expired(log: PartitionLog, segment: Segment, now_ms: int) -> bool:
    retention_ms = log.settings.retention_ms
    return retention_ms != UNLIMITED and now_ms - segment.max_timestamp > retention_ms
