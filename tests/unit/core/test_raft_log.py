"""The log in memory against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.raft_members import command

from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import Snapshot

terms = st.lists(st.integers(1, 5), max_size=12).map(sorted)


@given(terms, st.integers(0, 14), st.integers(0, 6))
def test_floor_is_the_last_index_with_no_later_term(written: list[int], index: int, term: int) -> None:
    log = RaftLog(None, [command(place + 1, one) for place, one in enumerate(written)])
    plain = [place + 1 for place, one in enumerate(written) if place + 1 <= index and one <= term]
    assert log.floor(index, term) == max(plain, default=0)


@given(terms, st.data())
def test_terms_and_slices_are_those_of_a_list_also_after_compaction(
    written: list[int], data: st.DataObject
) -> None:
    entries = [command(place + 1, one) for place, one in enumerate(written)]
    log = RaftLog(None, entries)
    log.commit(len(entries))
    assert list(log.give()) == entries
    assert log.give() == ()
    start = data.draw(st.integers(0, len(entries)))
    if start:
        log.compact(Snapshot(start, written[start - 1], ("a",), b""))
    assert (log.start_index, log.last_index) == (start, len(entries))
    assert log.last_term == (written[-1] if written else 0)
    for index in range(len(entries) + 3):
        known = start <= index <= len(entries)
        assert log.term_at(index) == ((written[index - 1] if index else 0) if known else None)
    assert list(log.between(start + 1, len(entries) + 1)) == entries[start:]


def test_chunk_has_at_least_one_entry() -> None:
    log = RaftLog(None, [command(1, 1, b"x" * 10), command(2, 1, b"y" * 3), command(3, 1, b"z" * 3)])
    assert len(log.chunk(1, count_max=3, bytes_max=5)) == 1
    assert len(log.chunk(2, count_max=3, bytes_max=6)) == 2
    assert len(log.chunk(2, count_max=1, bytes_max=6)) == 1
    assert log.chunk(4, count_max=3, bytes_max=5) == ()
