"""The way from batch to batch within bytes of a segment: the few fields that say where each ends, and its checksum.

Written for speed, a microsecond a batch. It says no more than that something is wrong; what exactly, the log's own scanner
finds out.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from goqueue.log.batch import CHECKED_FROM, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from goqueue.log.scan import EpochOf

_FRAME = struct.Struct(">qiibI2xi")  # base offset, length, leader epoch, magic, checksum, last offset delta


class Stretch(NamedTuple):
    """Sound batches one behind the other: their bytes, and the offset behind the last."""

    size: int
    end: int
    needed: (
        int  # bytes that the next batch has, where it is not all there; 0: it does not begin or is not sound
    )


def sound_stretch(window: memoryview, start: int, end: int, epoch_of: EpochOf) -> Stretch:
    """The batches at the beginning of the window, from the one at offset `start` to the one that reaches `end`."""
    position, expected, known_epoch = 0, start, None
    available = len(window)
    read = _FRAME.unpack_from
    while expected < end:
        if available - position < HEADER_BYTES:
            return Stretch(position, expected, HEADER_BYTES)
        base, length, epoch, magic, crc, delta = read(window, position)
        size = length + LENGTH_OVERHEAD
        if base != expected or magic != MAGIC or size < HEADER_BYTES or delta < 0:
            return Stretch(position, expected, 0)
        if size > available - position:
            return Stretch(position, expected, size)
        if epoch != known_epoch:
            known_epoch = epoch
            if epoch_of(base) not in (None, epoch):
                return Stretch(position, expected, 0)
        if crc32c(window[position + CHECKED_FROM : position + size]) != crc:
            return Stretch(position, expected, 0)
        position += size
        expected = base + delta + 1
    return Stretch(position, expected, 0)
