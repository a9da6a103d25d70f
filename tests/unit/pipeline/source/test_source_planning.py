from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.source.limits import share_bytes, share_offsets, waiting_count
from goqueue.pipeline.source.options import Sizes
from goqueue.pipeline.source.planning import TASK_RECORDS, TASKS_USUAL_MAX, plan
from goqueue.pipeline.span import Place, Span

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 2_000)), max_size=12).map(
    lambda found: [Span("t", index, start, start + size) for index, (start, size) in enumerate(found)]
)
SIZES = st.builds(Sizes, st.integers(1, 40), st.none() | st.integers(40, 60), st.none() | st.integers(1, 500))


@settings(deadline=None)
@given(spans=SPANS, sizes=SIZES)
def test_plan_has_every_offset_once_in_tasks_of_equal_size(spans: list[Span], sizes: Sizes) -> None:
    tasks = plan(spans, sizes)
    pieces = [piece for task in tasks for piece in task]
    assert [(p.partition, o) for p in pieces for o in range(p.start, p.end)] == [
        (s.partition, o) for s in spans for o in range(s.start, s.end)
    ]
    counts = [sum(piece.size for piece in task) for task in tasks]
    assert not counts or max(counts) - min(counts) <= 1
    assert min(counts, default=1) >= 1
    total = sum(span.size for span in spans)
    assert len(tasks) >= min(sizes.tasks_min, total)
    if sizes.records_max is not None:
        assert max(counts, default=0) <= sizes.records_max


@settings(deadline=None)
@given(spans=SPANS, tasks_min=st.integers(1, 40))
def test_partitions_that_stay_whole_are_spread_evenly(spans: list[Span], tasks_min: int) -> None:
    tasks = plan(spans, Sizes(tasks_min=tasks_min, keeps_whole=True))
    assert sorted(span for task in tasks for span in task) == sorted(spans)
    assert all(tasks)
    assert len(tasks) == min(tasks_min, len(spans))
    loads = [sum(span.size for span in task) for task in tasks]
    assert not loads or max(loads) - min(loads) <= max(span.size for span in spans)


def test_little_is_one_task_and_much_is_few() -> None:
    small = [Span("t", partition, 0, 10) for partition in range(50)]
    assert plan(small, Sizes()) == [tuple(small)]
    assert len(plan([Span("t", 0, 0, 4 * TASK_RECORDS)], Sizes())) == 4
    huge = [Span("t", 0, 0, 10_000 * TASK_RECORDS)]
    assert len(plan(huge, Sizes())) == TASKS_USUAL_MAX
    assert len(plan(huge, Sizes(tasks_min=1_000))) == 1_000
    assert len(plan(huge, Sizes(tasks_max=7))) == 7
    assert plan([], Sizes(tasks_min=9)) == []
    with pytest.raises(
        OptionError, match="maxRecordsPerPartition 9 cuts 5000000000 offsets into 555555556 tasks"
    ):
        plan(huge, Sizes(records_max=9))


PLACES = [Place("t", partition) for partition in range(6)]
WAITING = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1_000)), min_size=6, max_size=6)


@settings(deadline=None)
@given(found=WAITING, offsets_max=st.integers(1, 3_000))
def test_limit_is_used_up_and_never_exceeded_and_nobody_starves(
    found: list[tuple[int, int]], offsets_max: int
) -> None:
    begins = {place: start for place, (start, _) in zip(PLACES, found, strict=True)}
    ends = {place: start + count for place, (start, count) in zip(PLACES, found, strict=True)}
    shared = share_offsets(begins, ends, offsets_max)
    taken = {place: shared[place] - begins[place] for place in PLACES}
    assert all(0 <= taken[place] <= ends[place] - begins[place] for place in PLACES)
    assert sum(taken.values()) == min(offsets_max, waiting_count(begins, ends))
    busy = [place for place in PLACES if ends[place] > begins[place]]
    if len(busy) <= offsets_max:
        assert all(taken[place] >= 1 for place in busy)


def test_limit_is_shared_in_proportion() -> None:
    begins = dict.fromkeys(PLACES[:3], 0)
    ends = dict(zip(PLACES, (1_000, 3_000, 6_000), strict=False))
    shared = share_offsets(begins, ends, 1_000)
    assert [abs(shared[place] - fair) <= 1 for place, fair in zip(PLACES, (100, 300, 600), strict=False)] == [
        True
    ] * 3


def test_partitions_take_turns_where_there_are_more_of_them_than_offsets_to_give() -> None:
    begins = dict.fromkeys(PLACES, 0)
    ends = dict.fromkeys(PLACES, 100)
    for _ in range(9):
        begins = share_offsets(begins, ends, 2)
    assert set(begins.values()) == {3}


def test_bytes_are_shared_in_proportion_with_one_offset_at_least() -> None:
    begins = dict.fromkeys(PLACES[:3], 10)
    ends = {PLACES[0]: 1_010, PLACES[1]: 12, PLACES[2]: 10}
    sizes = {PLACES[0]: 10.0, PLACES[1]: 1_000.0}
    assert share_bytes(begins, ends, sizes, 100_000) == ends
    assert share_bytes(begins, ends, sizes, 1_200) == {PLACES[0]: 110, PLACES[1]: 11, PLACES[2]: 10}
    assert share_bytes(begins, ends, sizes, 1) == {PLACES[0]: 11, PLACES[1]: 11, PLACES[2]: 10}
