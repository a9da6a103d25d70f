"""Frames out of a stream, however it is cut."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.frames import Frame, FrameReader

LIMIT = 100


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def feed(reader: FrameReader, data: bytes) -> list[Frame]:
    """As a transport does it: into the buffer that the reader gives."""
    frames: list[Frame] = []
    while data:
        room = reader.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += reader.received(count)
        data = data[count:]
    return frames


@given(
    contents=st.lists(st.binary(min_size=1, max_size=LIMIT), max_size=10),
    rest=st.binary(max_size=3),
    cuts=st.lists(st.integers(0, 1_200), max_size=20),
    is_bad=st.booleans(),
)
def test_any_chunking_gives_the_same_frames(
    contents: list[bytes], rest: bytes, cuts: list[int], is_bad: bool
) -> None:
    stream = b"".join(map(framed, contents)) + (struct.pack(">i", -5) + rest if is_bad else rest)
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader(LIMIT, bytearray(512))
    frames: list[Frame] = []
    for start, end in pairwise(bounds):
        frames += feed(reader, stream[start:end])
    assert frames == contents
    assert (reader.fault is not None) == is_bad


def test_byte_by_byte() -> None:
    reader = FrameReader(LIMIT, bytearray(512))
    stream = framed(b"one") + framed(b"two")
    assert [frame for byte in stream for frame in feed(reader, bytes([byte]))] == [b"one", b"two"]


@pytest.mark.parametrize("length", [0, -1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_impossible_length_is_a_fault(length: int) -> None:
    reader = FrameReader(LIMIT, bytearray(512))
    assert feed(reader, framed(b"good") + struct.pack(">i", length) + b"more") == [b"good"]
    assert reader.fault == f"a frame of {length} bytes; it must have 1 to {LIMIT}"
    assert feed(reader, framed(b"late")) == []


def test_frame_of_the_largest_size_is_read() -> None:
    reader = FrameReader(LIMIT, bytearray(512))
    assert feed(reader, framed(b"x" * LIMIT)) == [b"x" * LIMIT]
    assert reader.fault is None


def test_announced_length_takes_no_memory_before_the_bytes_come() -> None:
    reader = FrameReader(1 << 30, bytearray(512))
    assert feed(reader, struct.pack(">i", 1 << 30) + b"x") == []
    assert feed(reader, b"") == []
    assert len(reader.buffer()) < 10_000


def test_a_frame_larger_than_any_buffer_comes_whole() -> None:
    content = bytes(range(256)) * 20_000
    reader = FrameReader(1 << 30, bytearray(100_000))
    assert feed(reader, framed(b"before") + framed(content) + framed(b"after")) == [
        b"before",
        content,
        b"after",
    ]
