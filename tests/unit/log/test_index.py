"""The sparse index against a plain list of batches."""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.log.batch import BatchHeader, build_batch, read_header
from goqueue.log.index import IndexEntry, SegmentIndex, load_index, save_index
from goqueue.model.record import NewRecord
from goqueue.sim.disk import Mount, SimDisk

INTERVAL_BYTES = 200
_HEADER = read_header(build_batch([NewRecord(None, None)], 0))


class Placed(NamedTuple):
    position: int
    header: BatchHeader


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, list[Placed]]:
    """The batches of a segment: any sizes, counts and timestamps, without timestamp (-1) among them."""
    base = draw(st.sampled_from([0, 7, 2**40]))
    offset, position = base, 0
    placed = []
    shapes = st.tuples(st.integers(61, 400), st.integers(1, 5), st.integers(-1, 60))
    for size, count, timestamp in draw(st.lists(shapes, max_size=25)):
        header = _HEADER._replace(
            base_offset=offset,
            length=size - 12,
            last_offset_delta=count - 1,
            max_timestamp=timestamp,
        )
        placed.append(Placed(position, header))
        offset, position = offset + count, position + size
    return base, placed


def index_of(base: int, placed: list[Placed], interval_bytes: int = INTERVAL_BYTES) -> SegmentIndex:
    index = SegmentIndex(base, interval_bytes)
    for position, header in placed:
        index.note(header, position)
    return index


def end_of(base: int, placed: list[Placed]) -> int:
    return placed[-1].header.end_offset if placed else base


@given(segments())
@settings(max_examples=120, deadline=None)
def test_lookup_by_offset_starts_at_or_before_the_batch_and_less_than_two_intervals_away(
    segment: tuple[int, list[Placed]],
) -> None:
    base, placed = segment
    index = index_of(base, placed)
    at = {header.last_offset: position for position, header in placed}
    for offset in range(base, end_of(base, placed)):
        wanted = next(p for p in placed if p.header.last_offset >= offset)
        entry = index.before_offset(offset)
        start = entry.position if entry else 0
        assert start <= wanted.position
        assert wanted.position - start < INTERVAL_BYTES + 2 * 400
        if entry:
            assert at[entry.last_offset] == entry.position


@given(segments(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_lookup_by_time_never_skips_a_batch_that_is_young_enough(
    segment: tuple[int, list[Placed]], is_sealed: bool
) -> None:
    base, placed = segment
    index = index_of(base, placed)
    if is_sealed:
        index.seal()
    for timestamp in range(62):
        entry = index.before_time(timestamp)
        start = entry[1] if entry else base
        assert not any(p.header.max_timestamp >= timestamp and p.header.last_offset < start for p in placed)
        if entry:
            assert entry[0] < timestamp
            assert any(
                p.header.last_offset == entry[1] and p.header.max_timestamp == entry[0] for p in placed
            )


@given(segments())
@settings(max_examples=100, deadline=None)
def test_sealed_index_ends_with_the_largest_timestamp(segment: tuple[int, list[Placed]]) -> None:
    base, placed = segment
    index = index_of(base, placed)
    index.seal()
    index.seal()
    largest = max((p.header.max_timestamp for p in placed), default=-1)
    assert index.max_timestamp == largest
    if largest < 0:
        assert index.last_time() is None
    else:
        first = next(p for p in placed if p.header.max_timestamp == largest)
        assert index.last_time() == (largest, first.header.last_offset)
    stamps = [timestamp for timestamp, _ in index.time_entries()]
    assert stamps == sorted(set(stamps))


@given(segments(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_encoded_index_decodes_to_the_same(segment: tuple[int, list[Placed]], is_sealed: bool) -> None:
    base, placed = segment
    index = index_of(base, placed)
    if is_sealed:
        index.seal()
    offsets, times = index.encode()
    again = SegmentIndex.decode(base, INTERVAL_BYTES, offsets, times)
    assert again is not None
    assert again.entries() == index.entries()
    assert again.time_entries() == index.time_entries()
    assert again.last_entry() == index.last_entry()
    assert again.last_time() == index.last_time()
    assert again.encode() == (offsets, times)
    assert again.max_timestamp == (
        index.max_timestamp if is_sealed else max([-1, *dict(index.time_entries())])
    )


@given(segments(), st.data())
@settings(max_examples=100, deadline=None)
def test_cut_index_knows_nothing_of_what_was_cut(
    segment: tuple[int, list[Placed]], data: st.DataObject
) -> None:
    base, placed = segment
    keep = data.draw(st.integers(0, len(placed)))
    kept, rest = placed[:keep], placed[keep:]
    end_offset = end_of(base, kept)
    end_position = (
        rest[0].position if rest else (placed[-1].position + placed[-1].header.size if placed else 0)
    )
    index = index_of(base, placed)
    times_before = index.time_entries()
    index.cut(end_offset, end_position)
    assert index.entries() == index_of(base, kept).entries()
    assert index.time_entries() == [entry for entry in times_before if entry[1] < end_offset]
    assert index.max_timestamp == max([-1, *dict(index.time_entries())])
    assert index.last_entry() == (index.entries()[-1] if index.entries() else None)


@given(segments(), st.data())
@settings(max_examples=60, deadline=None)
def test_sealed_index_that_was_cut_where_it_ended_goes_on_as_if_it_had_not(
    segment: tuple[int, list[Placed]], data: st.DataObject
) -> None:
    """As at a checkpoint: sealed, saved, loaded by the next process, cut at the recovery point, appended to."""
    base, placed = segment
    keep = data.draw(st.integers(0, len(placed)))
    index = index_of(base, placed[:keep])
    index.seal()
    end_position = sum(header.size for _, header in placed[:keep])
    index.cut(end_of(base, placed[:keep]), end_position)
    for position, header in placed[keep:]:
        index.note(header, position)
    index.seal()
    never_cut = index_of(base, placed)
    never_cut.seal()
    assert index.last_time() == never_cut.last_time()
    for timestamp in range(62):
        start = (index.before_time(timestamp) or (0, base))[1]
        assert not any(p.header.max_timestamp >= timestamp and p.header.last_offset < start for p in placed)


def test_batches_without_timestamps_leave_no_time_entry() -> None:
    """An entry of -1 would make the file look malformed to whoever loads it."""
    placed = [Placed(100 * at, _HEADER._replace(base_offset=at, max_timestamp=-1)) for at in range(9)]
    index = index_of(0, placed, interval_bytes=0)
    index.seal()
    assert len(index.entries()) == 9
    assert index.time_entries() == []
    assert SegmentIndex.decode(0, 0, *index.encode()) is not None


def test_first_batch_needs_no_entry_and_each_interval_gets_one() -> None:
    header = _HEADER._replace(length=88)  # 100 bytes
    placed = [Placed(100 * at, header._replace(base_offset=at, max_timestamp=at)) for at in range(7)]
    index = index_of(0, placed)
    assert index.entries() == [IndexEntry(2, 200), IndexEntry(4, 400), IndexEntry(6, 600)]
    assert index.time_entries() == [(2, 2), (4, 4), (6, 6)]


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        (bytes(7), b""),
        (b"", bytes(13)),
        (struct.pack(">4i", 5, 10, 5, 20), b""),  # offsets must rise
        (struct.pack(">4i", 5, 10, 4, 20), b""),
        (struct.pack(">4i", 5, 10, 6, 10), b""),  # positions must rise
        (struct.pack(">2i", -1, 10), b""),
        (struct.pack(">2i", 1, -10), b""),
        (b"", struct.pack(">qiqi", 9, 1, 9, 2)),  # times must rise
        (b"", struct.pack(">qi", -1, 0)),
    ],
)
def test_files_that_cannot_be_an_index_are_refused(offsets: bytes, times: bytes) -> None:
    assert SegmentIndex.decode(0, INTERVAL_BYTES, offsets, times) is None


@given(st.binary(max_size=64), st.binary(max_size=64))
@settings(max_examples=150, deadline=None)
def test_random_files_are_refused_or_give_an_index_that_encodes_to_the_same(
    offsets: bytes, times: bytes
) -> None:
    index = SegmentIndex.decode(3, INTERVAL_BYTES, offsets, times)
    if index is not None:
        assert index.encode() == (offsets, times)


# ---------------------------------------------------------------- files


@pytest.fixture
def mount() -> Mount:
    return SimDisk(Random(0)).mount()


def test_saved_index_is_loaded_and_an_incomplete_one_is_not(mount: Mount) -> None:
    placed = [Placed(100 * at, _HEADER._replace(base_offset=at, max_timestamp=at)) for at in range(9)]
    index = index_of(0, placed, interval_bytes=100)
    save_index(mount, "00", index.encode())
    loaded = load_index(mount, "00", 0, 100)
    assert loaded is not None
    assert loaded.entries() == index.entries()
    assert load_index(mount, "01", 0, 100) is None
    mount.remove("00.timeindex")
    assert load_index(mount, "00", 0, 100) is None
