"""Which records of a batch that was sent on are in the log of a partition: record by record, because a batch that comes again may have
others for it than the first time."""

from __future__ import annotations

from collections.abc import Callable, Container

from goqueue.core.producer import Appended
from goqueue.log.batch import decode_rows, read_header, rebuild_batch
from goqueue.log.records import Row
from goqueue.node.partition import Partition
from goqueue.node.scaling.homes import Opened


async def offsets_held(partition: Partition, producer_id: int, epoch: int, sequence: int) -> dict[int, int]:
    """By their positions in the batch that begins with the sequence; whether they are committed is for the caller to see."""
    found: dict[int, int] = {}
    for batch in partition.newest_batches(producer_id, epoch):
        if batch.first_sequence == sequence:
            found.update(await _positions(partition, batch))
    return found


async def _positions(partition: Partition, batch: Appended) -> dict[int, int]:
    base = batch.base_offset
    if base < partition.log.log_start:  # retention has taken it
        return {}
    slice = await partition.read(base, end=base + 1, bytes_max=1, is_own=True)
    return {
        row[0]: base + row[0]
        for one in slice.batches
        if one.header.base_offset == base and one.header.producer_id == batch.producer_id
        for row in decode_rows(one.data, one.header)
    }


async def lacking(
    partition: Partition, opened: Opened, later: Container[int], is_newcomer: Callable[[Row], bool]
) -> Opened | None:
    """Of a part that has come before, as `Partition.find` says, the records that the partition does not hold, and that do not wait for their
    time (`later`, by position): they lived in another one then, and never got there. None where there are none, or where it is not the newest of its
    producer: what came after it came when all of it was stored.

    Where retention or compaction has been at what it held, nobody knows what that was. Then only those are lacking that lived elsewhere before
    the change that is under way (`is_newcomer`): stored twice at worst, and not lost."""
    header = opened.header
    batches = partition.newest_batches(header.producer_id, header.producer_epoch)
    if not batches or batches[-1].first_sequence != header.base_sequence:
        return None
    gone_before = max(partition.log.log_start, partition.log.clean_end)
    is_touched = any(
        each.first_sequence == header.base_sequence and each.base_offset < gone_before for each in batches
    )
    held = await offsets_held(partition, header.producer_id, header.producer_epoch, header.base_sequence)
    rows = [
        row
        for row in opened.rows()
        if row[0] not in held and row[0] not in later and (not is_touched or is_newcomer(row))
    ]
    if not rows:
        return None
    rest = rebuild_batch(header, rows, delete_horizon_ms=None)
    return Opened(read_header(rest), rest)
