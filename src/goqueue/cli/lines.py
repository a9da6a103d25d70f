"""Lines of a stream, in groups, as soon as they are there.

A pipe is read with whatever it holds at the moment: a slow writer's lines go out at once, a fast one's in
full groups, without a timer and without a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_CHUNK_BYTES = 256 * 1024
LINE_BYTES_MAX = (
    64 * 1024 * 1024
)  # beyond any message a broker takes; keeps a file without newlines out of memory


class LineTooLong(Exception):
    """Names the limit; the stream is probably not made of lines."""


def line_groups(descriptor: int, *, count_max: int) -> Iterator[list[bytes]]:
    """Groups of at most `count_max` lines without their newlines. The last line needs none."""
    rest = bytearray()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        rest += chunk
        if b"\n" in chunk:
            *lines, last = rest.split(b"\n")
            rest = last
            yield from _groups([bytes(line) for line in lines], count_max)
        if len(rest) > LINE_BYTES_MAX:
            raise LineTooLong(f"a line is longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [bytes(rest)]


def _groups(lines: list[bytes], count_max: int) -> Iterator[list[bytes]]:
    for start in range(0, len(lines), count_max):
        yield lines[start : start + count_max]
