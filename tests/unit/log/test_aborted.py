"""The index of aborted transactions against a plain list."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.log.aborted import (
    Aborted,
    AbortedIndex,
    AbortedSpans,
    TransactionWalk,
    decode_aborted,
    empty_aborted,
    load_aborted,
    save_aborted,
)
from goqueue.log.batch import (
    ATTRIBUTE_TRANSACTIONAL,
    BatchHeader,
    encode_batch,
)
from goqueue.log.control import encode_marker
from goqueue.model.record import NewRecord, Producer
from goqueue.sim.disk import SimDisk


class Step(NamedTuple):
    """What happens to a producer at the next offset; None: it writes another record."""

    producer_id: int
    is_commit: bool | None


STEPS = st.lists(st.builds(Step, st.integers(1, 4), st.sampled_from([None, None, True, False])), max_size=40)


class History:
    """A log of one record a batch, and what is true of it."""

    def __init__(self, steps: list[Step]) -> None:
        self.walk = TransactionWalk()
        self.headers: list[BatchHeader] = []
        self.aborted: set[int] = set()  # offsets
        self.entries: list[Aborted] = []
        open: dict[int, list[int]] = {}
        for offset, (id, is_commit) in enumerate(steps):
            header, data = self.batch(id, is_commit)
            header = header._replace(base_offset=offset)
            self.headers.append(header)
            self.walk.note(header, data)
            if is_commit is None:
                open.setdefault(id, []).append(offset)
                continue
            offsets = open.pop(id, [])
            if offsets and not is_commit:
                self.aborted.update(offsets)
                stable = min((others[0] for others in open.values()), default=offset + 1)
                self.entries.append(Aborted(id, offsets[0], offset, stable))
        self.open = {id: offsets[0] for id, offsets in open.items()}

    @staticmethod
    def batch(id: int, is_commit: bool | None) -> tuple[BatchHeader, bytes]:
        if is_commit is None:
            return encode_batch(
                [NewRecord(None, b"v")],
                1_000,
                producer=Producer(id, 0, 0),
                attributes=ATTRIBUTE_TRANSACTIONAL,
            )
        return encode_marker(id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp_ms=1_000)


@given(STEPS)
def test_walk_finds_what_is_open_and_what_was_aborted(steps: list[Step]) -> None:
    history = History(steps)
    assert list(history.walk.aborted) == history.entries
    assert history.walk.open == history.open


@given(STEPS, st.data())
def test_batches_of_any_slice_are_told_apart(steps: list[Step], data: st.DataObject) -> None:
    history = History(steps)
    start = data.draw(st.integers(0, len(steps)))
    end = data.draw(st.integers(start, len(steps)))
    entries = history.walk.aborted.overlapping(start, end)
    spans = AbortedSpans(entries)
    for header in history.headers[start:end]:
        assert spans.cover(header) == (header.base_offset in history.aborted)
    assert len(set(entries)) == len(entries)
    assert all(entry.last_offset >= start and entry.first_offset < end for entry in entries)


@given(STEPS, st.data())
def test_kafka_client_that_gets_the_list_skips_the_aborted_records_and_no_others(
    steps: list[Step], data: st.DataObject
) -> None:
    """As the Java client does it: a producer is skipped from the first offset on until its abort marker."""
    history = History(steps)
    stable = min(history.open.values(), default=len(steps))
    start = data.draw(st.integers(0, stable))
    pending = sorted(
        history.walk.aborted.overlapping(start, stable), key=lambda entry: entry.first_offset, reverse=True
    )
    skipped: set[int] = set()
    delivered: set[int] = set()
    for offset in range(start, stable):
        id, is_commit = steps[offset]
        while pending and pending[-1].first_offset <= offset:
            skipped.add(pending.pop().producer_id)
        if is_commit is False:
            skipped.discard(id)
        elif is_commit is None and id not in skipped:
            delivered.add(offset)
    expected = {at for at in range(start, stable) if steps[at].is_commit is None} - history.aborted
    assert delivered == expected


@given(STEPS, st.integers(0, 40), st.integers(0, 40))
def test_forgetting_keeps_the_rest_in_order(steps: list[Step], start: int, end: int) -> None:
    history = History(steps)
    index = history.walk.aborted.copy()
    index.forget_before(start)
    index.forget_from(end)
    assert list(index) == [entry for entry in history.entries if start <= entry.last_offset < end]
    assert index.digest(0, 99) == history.walk.aborted.digest(start, max(start, end))
    other = history.walk.aborted.copy()
    gone = {entry.last_offset for entry in history.entries[::2]}
    other.forget(gone)
    assert list(other) == history.entries[1::2]


# ---------------------------------------------------------------- its file

NUMBERS = st.integers(0, 2**63 - 1)


@given(st.lists(st.builds(Aborted, NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=5))
def test_file_gives_the_entries_back(entries: list[Aborted]) -> None:
    index = AbortedIndex()
    for entry in entries:
        index.add(entry)
    again = decode_aborted(index.encode())
    assert isinstance(again, AbortedIndex)
    assert list(again) == entries
    assert again.is_saved


def test_file_that_is_cut_or_has_a_flipped_bit_is_refused() -> None:
    index = AbortedIndex()
    index.add(Aborted(1, 2, 3, 4))
    index.add(Aborted(5, 6, 7, 8))
    content = index.encode()
    for end in range(len(content)):
        assert isinstance(decode_aborted(content[:end]), str)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(decode_aborted(bytes(damaged)), str)
    assert isinstance(decode_aborted(content + b"\x00"), str)


def test_missing_file_is_an_empty_index_that_need_not_be_written() -> None:
    mount = SimDisk(Random(0)).mount()
    mount.make_dir("folder")
    index = load_aborted(mount, "folder")
    assert isinstance(index, AbortedIndex)
    assert (len(index), index.is_saved) == (0, True)
    assert empty_aborted(mount, "folder").is_saved
    index.add(Aborted(1, 2, 3, 4))
    save_aborted(mount, "folder", index)
    assert not empty_aborted(mount, "folder").is_saved, "the file must be replaced"


def test_index_knows_whether_its_file_is_up_to_date() -> None:
    index = AbortedIndex()
    index.add(Aborted(1, 0, 3, 4))
    change_count = index.change_count
    index.add(Aborted(1, 5, 6, 7))
    index.saved(change_count)
    assert not index.is_saved, "an entry came while the file was written"
    index.saved(index.change_count)
    index.forget_before(3)
    assert (len(index), index.is_saved) == (2, True)
    index.forget_before(4)
    assert (len(index), index.is_saved) == (1, False)


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_search_does_not_look_at_entries_that_cannot_matter(count: int) -> None:
    index = AbortedIndex()
    for at in range(count):
        index.add(Aborted(1, 2 * at, 2 * at + 1, 2 * at + 2))
    found = index.overlapping(count, count + 2)
    assert len(found) <= 2
