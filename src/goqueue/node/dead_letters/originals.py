"""Records of a partition, for those who copy them elsewhere."""

from __future__ import annotations

from goqueue.log.batch import decode_batch
from goqueue.log.partition_log import Slice
from goqueue.model.errors import DataCorrupt, OffsetOutOfRange
from goqueue.model.record import StoredRecord
from goqueue.node.partition import Partition

_FETCH_BYTES = 256 * 1024


class Originals:
    """By offset. Neighbours mostly lie in one batch, so the last one that was read is kept."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._start = 0
        self._end = 0
        self._records: dict[int, StoredRecord] = {}

    async def get(self, offset: int) -> StoredRecord | None:
        """None where it is gone, aborted or damaged; damage is reported where it is found."""
        if not self._start <= offset < self._end:
            self._start = self._end = 0
            try:
                part = await self._partition.read(offset, end=offset + 1, bytes_max=1)
            except (OffsetOutOfRange, DataCorrupt):
                return None
            self._records = {record.offset: record for record in _committed(self._partition, part)}
            if part.batches:
                self._start, self._end = part.batches[0].header.base_offset, part.next_offset
        return self._records.get(offset)


async def read_on(partition: Partition, offset: int, end: int) -> tuple[list[StoredRecord], int]:
    """Records from `offset` on, and where to go on; not past `end`."""
    part = await partition.read(offset, end=end, bytes_max=_FETCH_BYTES)
    records = [record for record in _committed(partition, part) if offset <= record.offset < end]
    return records, min(part.next_offset, end)


def _committed(partition: Partition, part: Slice) -> list[StoredRecord]:
    if not part.batches:
        return []
    aborted = partition.aborted_spans(part.batches[0].header.base_offset, part.next_offset)
    return [
        record
        for batch in part.batches
        if not batch.header.is_control and not aborted.cover(batch.header)
        for record in decode_batch(batch.data, batch.header)
    ]
