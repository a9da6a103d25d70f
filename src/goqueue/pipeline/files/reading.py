"""Reading offsets of a partition's files: sound batches in large pieces, and what cannot be had in between.

Every frame and every checksum is looked at before a batch is given, so that an error can say which file is damaged, and
where. Nobody needs to hash them once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from goqueue.log.batch import PREFIX, PREFIX_BYTES
from goqueue.log.control import encode_marker
from goqueue.log.disk import File
from goqueue.log.scan import Damage, Scanner
from goqueue.log.segment import Segment
from goqueue.model.errors import DataCorrupt
from goqueue.pipeline.files.frames import sound_stretch
from goqueue.pipeline.files.view import PartitionView

_FIRST_PIECE_BYTES = 256 * 1024  # a short span needs no more; then each is four times as long
_PROBE_BYTES = 64 * 1024


class Piece(NamedTuple):
    """Batches with offsets [start, end)."""

    start: int
    end: int
    data: memoryview


class Lost(NamedTuple):
    """Offsets [start, end) that are not to be had, and why."""

    start: int
    end: int
    file: str
    position: int
    reason: str


def pieces(view: PartitionView, start: int, end: int, *, bytes_max: int) -> Iterator[Piece | Lost]:
    """Everything in [start, end) in order, without a gap, up to so many bytes at once but one batch at least. The first and the last piece may reach beyond. An OSError where
    a file has gone or cannot be read."""
    offset = start
    for item in _in_order(view, start, end, bytes_max):
        yield item
        offset = item.end
    if offset < end:
        last = view.log.segments[-1] if view.log.segments else None
        path, size = (last.path, last.size) if last else (view.folder, 0)
        yield Lost(offset, end, path, size, f"the log ends at offset {view.log.end}")


def _in_order(view: PartitionView, start: int, end: int, bytes_max: int) -> Iterator[Piece | Lost]:
    log = view.log
    if start < view.earliest:
        start, gone = min(view.earliest, end), start
        yield Lost(gone, start, view.folder, 0, f"the log starts at offset {view.earliest} now")
    first = max(view.earliest, log.segments[0].base_offset) if log.segments else end
    if start < min(first, end) and log.segments:
        start, gone = min(first, end), start
        yield Lost(gone, start, view.folder, 0, "the segments before the first one are missing")
    for segment in log.segments:
        if segment.base_offset < end and start < min(segment.end_offset, end):
            yield from _of_segment(view, segment, start, min(end, segment.end_offset), bytes_max)
            start = max(start, segment.end_offset)


def _of_segment(
    view: PartitionView, segment: Segment, start: int, end: int, bytes_max: int
) -> Iterator[Piece | Lost]:
    file, epoch_of = segment.file(), view.log.epochs.at
    offset, position = start, -1
    piece_bytes = size = min(_FIRST_PIECE_BYTES, bytes_max)
    while offset < end:
        if position < 0:
            found = _position_of(segment, offset)
            if isinstance(found, Lost):
                yield found
                offset = found.end
                continue
            position, offset = found
        window = memoryview(_read(file, position, min(size, segment.size - position)))
        stretch = sound_stretch(window, offset, end, epoch_of)
        if stretch.end > segment.end_offset:
            raise OSError(f"{segment.path} has offsets of the segment behind it: it has been replaced")
        if stretch.size:
            yield Piece(offset, stretch.end, window[: stretch.size])
            piece_bytes = size = min(4 * piece_bytes, bytes_max)
            position, offset = position + stretch.size, stretch.end
        elif len(window) < stretch.needed <= segment.size - position:
            size = stretch.needed  # one batch that is larger than a piece
        else:
            lost, position = _loss(segment, file, view, position, offset)
            if lost.end > offset:  # else there are bytes too many, and no record too few
                yield lost
            offset = lost.end


def _position_of(segment: Segment, offset: int) -> tuple[int, int] | Lost:
    """Position and base offset of the batch that holds an offset."""
    if offset <= segment.base_offset:
        return 0, segment.base_offset
    try:
        found = segment.read(offset, end=offset + 1, bytes_max=_PROBE_BYTES, cached_only=False)[0]
    except DataCorrupt as error:
        end = min(error.end, segment.end_offset)
        if end <= offset:
            raise OSError(f"{segment.path} gave different bytes when it was read again") from error
        position, reason = int(str(error.details["position"])), str(error.details["reason"])
        return Lost(offset, end, segment.path, position, reason)
    return found.position, found.header.base_offset


def _read(file: File, position: int, size: int) -> bytes:
    data = file.read(position, size)
    if len(data) < size:
        raise OSError(f"{len(data)} bytes were read at byte {position} where there were {size}")
    return data


def _loss(segment: Segment, file: File, view: PartitionView, position: int, offset: int) -> tuple[Lost, int]:
    """What is wrong at a position, and where to go on; behind the segment if nothing sound follows."""
    if position >= segment.size:
        reason = f"the file ends at offset {offset}; the log goes on at {segment.end_offset}"
        return Lost(offset, segment.end_offset, segment.path, position, reason), position
    scanner = Scanner(file, segment.size, check_crc=True, epoch_of=view.log.epochs.at)
    item = next(scanner.scan(position, offset))
    if not isinstance(item, Damage):
        raise OSError(f"{segment.path} gave different bytes at {position} when it was read again")
    end = segment.end_offset if item.end is None else min(item.end, segment.end_offset)
    return Lost(offset, end, segment.path, position, item.reason), item.next_position


def markers_in(view: PartitionView, start: int, end: int) -> bytes:
    """The abort markers that were among lost offsets: without them whoever follows the transactions would take what
    their producers wrote later for aborted."""
    return b"".join(
        _marker(entry.producer_id, entry.last_offset)
        for entry in view.log.aborted.overlapping(start, end)
        if start <= entry.last_offset < end
    )


def _marker(producer_id: int, offset: int) -> bytes:
    header, batch = encode_marker(producer_id, 0, is_commit=False, coordinator_epoch=0, timestamp_ms=0)
    return PREFIX.pack(offset, header.length, header.leader_epoch) + batch[PREFIX_BYTES:]
