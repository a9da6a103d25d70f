"""Looking at a log for records that are not of the normal lane. Batches without any cost one search of their bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from goqueue.log.batch import HEADER_BYTES, BatchHeader
from goqueue.log.compression import Codec, codec_of, decompress
from goqueue.log.partition_log import PartitionLog, Slice
from goqueue.log.postings import LISTED_LANES
from goqueue.log.records import contains, decode_records
from goqueue.model.errors import DataCorrupt, InvalidBatch, OffsetOutOfRange, UnsupportedCompression
from goqueue.model.priority import LANE_COUNT, NORMAL, PRIORITY_HEADER, lane_of
from goqueue.model.record import Header

_READ_BYTES: Final = 1024 * 1024
_NAME: Final = PRIORITY_HEADER.encode()
_USUAL: Final = {b"%d" % lane: lane for lane in range(LANE_COUNT)}


class Looked(NamedTuple):
    """The records of the lanes in offsets [.., end) of a log, from where the look began."""

    offsets: dict[int, array[int]]
    end: int
    size_bytes: int
    entry_count: int


def look(
    log: PartitionLog, start: int, end: int, *, bytes_max: int, count_max: int, cached_only: bool = False
) -> Looked:
    """From `start` up to `end`, or up to about so many bytes or so many records of the lanes. Blocks, or raises NotCached.

    A damaged batch is passed by. It is the normal lane's to report it, which reads the log itself."""
    offsets: dict[int, array[int]] = {lane: array("q") for lane in LISTED_LANES}
    size_bytes = count = 0
    while start < end and size_bytes < bytes_max and count < count_max:
        try:
            part = _read(log, start, end, min(_READ_BYTES, bytes_max), cached_only=cached_only)
        except DataCorrupt as error:
            start = max(start + 1, error.end)
            continue
        except OffsetOutOfRange:  # retention was quicker
            start = max(start + 1, min(log.log_start, end))
            continue
        for batch in part.batches:
            size_bytes += batch.header.size
            if batch.header.is_control:
                continue
            for offset, lane in _listed(batch.header, batch.data):
                if start <= offset < end:
                    offsets[lane].append(offset)
                    count += 1
        start = part.next_offset
    return Looked(offsets, min(start, end), size_bytes, count)


def lane_of_headers(headers: tuple[Header, ...]) -> int:
    """By the first header that names a priority."""
    for name, value in headers:
        if name == PRIORITY_HEADER:
            lane = None if value is None else _USUAL.get(value)
            return lane_of(value) if lane is None else lane
    return NORMAL


def _read(log: PartitionLog, start: int, end: int, bytes_max: int, *, cached_only: bool) -> Slice:
    try:
        return log.read(start, end=end, bytes_max=bytes_max, cached_only=cached_only)
    except FileNotFoundError:  # a segment was replaced or removed; a second look knows
        return log.read(start, end=end, bytes_max=bytes_max, cached_only=cached_only)


def _listed(header: BatchHeader, data: memoryview) -> Iterator[tuple[int, int]]:
    """Offset and lane of the records that are not normal. Most batches have none, and it takes one search to know."""
    try:
        codec = codec_of(header.attributes)
        payload = data[HEADER_BYTES : header.size]
        content = payload if codec is Codec.NONE else decompress(codec, payload)
        if not contains(content, _NAME):
            return
        rows = decode_records(content, 0, header.record_count, header.last_offset_delta)
    except (ValueError, InvalidBatch, UnsupportedCompression):  # nobody can read its records
        return
    for delta, _, _, _, headers in rows:
        lane = lane_of_headers(headers)
        if lane != NORMAL:
            yield header.base_offset + delta, lane
