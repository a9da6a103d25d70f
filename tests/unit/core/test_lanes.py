"""Weights, the bound on waiting, and a model that hands out one record at a time."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.core.lanes import POLL_GAP_MS_MAX, Lanes
from goqueue.model.priority import LANE_COUNT, STARVATION_MS_MAX, WEIGHTS

FULL = [10**9] * LANE_COUNT
DEPTHS = st.lists(
    st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 300)), min_size=LANE_COUNT, max_size=LANE_COUNT
)


def served(lanes: Lanes, limits: list[int], *, now_ms: int = 0) -> list[int]:
    totals = [0] * LANE_COUNT
    for limit in limits:
        for lane, count in enumerate(lanes.take(FULL, limit, now_ms)):
            totals[lane] += count
    return totals


def test_a_round_is_the_weights() -> None:
    assert served(Lanes(), [100]) == list(WEIGHTS)
    assert served(Lanes(), [1] * 100) == list(WEIGHTS)
    assert served(Lanes(), [1_000]) == [10 * weight for weight in WEIGHTS]


@given(st.lists(st.integers(1, 250), min_size=1, max_size=60))
def test_shares_are_right_however_records_are_split_into_polls(limits: list[int]) -> None:
    """Trap 10: every whole round is exact, so that what is behind the last one is all that may differ."""
    totals = served(Lanes(), limits)
    rounds, rest = divmod(sum(limits), sum(WEIGHTS))
    assert sum(totals) == sum(limits)
    for lane, weight in enumerate(WEIGHTS):
        assert rounds * weight <= totals[lane] <= (rounds + 1) * weight
        assert rest or totals[lane] == rounds * weight


@given(st.lists(st.integers(1, 1_000), min_size=20, max_size=60).filter(lambda limits: sum(limits) > 5_000))
def test_shares_are_within_two_percent(limits: list[int]) -> None:
    totals = served(Lanes(), limits)
    for lane, weight in enumerate(WEIGHTS):
        assert abs(totals[lane] / sum(limits) - weight / sum(WEIGHTS)) < 0.02


@given(st.lists(st.tuples(DEPTHS, st.integers(0, 400), st.integers(0, 40_000)), max_size=30))
def test_never_more_than_there_is_or_than_is_asked_for_and_never_less(
    polls: list[tuple[list[int], int, int]],
) -> None:
    lanes = Lanes()
    now_ms = 0
    for depths, limit, pause_ms in polls:
        now_ms += pause_ms
        counts = lanes.take(depths, limit, now_ms)
        assert all(0 <= count <= depth for count, depth in zip(counts, depths, strict=True))
        assert sum(counts) == min(limit, sum(depths))


@given(DEPTHS, st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_one_poll_takes_what_many_small_ones_take(depths: list[int], limits: list[int]) -> None:
    at_once = Lanes().take(depths, sum(limits), 0)
    lanes, left = Lanes(), list(depths)
    for limit in limits:
        for _ in range(limit):
            left = [a - b for a, b in zip(left, lanes.take(left, 1, 0), strict=True)]
    assert at_once == [a - b for a, b in zip(depths, left, strict=True)]


def test_a_lane_that_is_empty_leaves_its_share_to_the_others() -> None:
    assert Lanes().take([0, 0, 10**6, 10**6, 0], 220, 0) == [0, 0, 150, 70, 0]


def test_a_critical_record_that_comes_in_the_middle_of_a_round_is_next() -> None:
    lanes = Lanes()
    lanes.take([0, 900, 900, 900, 900], 3, 0)
    assert lanes.take([1, 900, 900, 900, 900], 1, 0) == [1, 0, 0, 0, 0]


def test_a_lane_saves_no_more_up_than_one_round_while_it_is_empty() -> None:
    lanes = Lanes()
    for _ in range(100):
        lanes.take([0, 900, 900, 900, 900], 50, 0)
    assert lanes.take(FULL, 1_000, 0)[0] == 11 * WEIGHTS[0]
    assert lanes.take(FULL, 1_000, 0)[0] == 10 * WEIGHTS[0]


# -------------------------------------------------------------------- nobody starves


class Clerk:
    """Polls in virtual time, and how long each lane has had records without being served."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.now_ms = 0
        self.depths = [0] * LANE_COUNT
        self.since_ms: list[int | None] = [None] * LANE_COUNT
        self.longest_ms = [0] * LANE_COUNT

    def arrive(self, lane: int, count: int) -> None:
        if not self.depths[lane]:
            self.since_ms[lane] = self.now_ms
        self.depths[lane] += count

    def poll(self, limit: int) -> None:
        for lane, count in enumerate(self.lanes.take(self.depths, limit, self.now_ms)):
            since_ms = self.since_ms[lane]
            if since_ms is not None:
                self.longest_ms[lane] = max(self.longest_ms[lane], self.now_ms - since_ms)
            if count:
                self.depths[lane] -= count
                self.since_ms[lane] = self.now_ms if self.depths[lane] else None


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
def test_no_lane_waits_over_the_bound_with_all_lanes_full(limit: int) -> None:
    clerk = Clerk()
    for lane in range(LANE_COUNT):
        clerk.arrive(lane, 10**6)
    for _ in range(500):
        clerk.poll(limit)
        clerk.now_ms += POLL_GAP_MS_MAX
    assert max(clerk.longest_ms) <= STARVATION_MS_MAX


STEP = st.tuples(
    st.integers(0, POLL_GAP_MS_MAX),  # until the next poll
    st.integers(1, 120),  # its limit
    st.lists(st.tuples(st.integers(0, LANE_COUNT - 1), st.sampled_from([1, 2, 400])), max_size=3),
    st.integers(0, 100),  # when records come, in percent of the time until the poll
)


@settings(max_examples=300)
@given(st.lists(STEP, min_size=20, max_size=120), st.booleans())
def test_no_lane_waits_over_the_bound_if_somebody_polls_every_five_seconds(
    steps: list[tuple[int, int, list[tuple[int, int]], int]], is_stingy: bool
) -> None:
    clerk = Clerk()
    for pause_ms, limit, arrivals, percent in steps:
        came_ms = pause_ms * percent // 100
        clerk.now_ms += came_ms
        for lane, count in arrivals:
            clerk.arrive(lane, count)
        clerk.now_ms += pause_ms - came_ms
        clerk.poll(1 if is_stingy else limit)
    assert max(clerk.longest_ms) <= STARVATION_MS_MAX


def test_what_was_there_before_the_first_poll_has_waited_already() -> None:
    clerk = Clerk()
    clerk.arrive(0, 10**6)
    clerk.arrive(1, 1)
    for pause_ms in (5_000, *[4_999] * 10):
        clerk.now_ms += pause_ms
        clerk.poll(1)
    assert max(clerk.longest_ms) <= STARVATION_MS_MAX


def test_whoever_is_served_early_pays_for_it() -> None:
    """Polls that are slow but still go through a round in half a minute keep to the weights."""
    clerk = Clerk()
    for lane in range(LANE_COUNT):
        clerk.arrive(lane, 10**6)
    for _ in range(200):
        clerk.poll(20)
        clerk.now_ms += 4_000
    totals = [10**6 - depth for depth in clerk.depths]
    for lane, weight in enumerate(WEIGHTS):
        assert abs(totals[lane] / sum(totals) - weight / 100) < 0.02
    assert max(clerk.longest_ms) <= STARVATION_MS_MAX


def test_a_clock_that_is_set_back_lets_nobody_starve() -> None:
    lanes = Lanes()
    lanes.take(FULL, 1, 10_000_000)
    background = [lanes.take(FULL, 1, step * POLL_GAP_MS_MAX)[4] for step in range(8)]
    assert sum(background) >= 1


def test_when_and_how_much_a_lane_was_served_is_known() -> None:
    lanes = Lanes()
    lanes.take([1, 0, 0, 0, 2], 2, 7)
    assert (lanes.served_counts, lanes.served_ms) == ([1, 0, 0, 0, 1], [7, None, None, None, 7])


# -------------------------------------------------------------------- against a model


class LanesMachine(RuleBasedStateMachine):
    """While no time passes the lanes are a game of cards: in each round everybody may lay down as many as it weighs, and the
    first who still can and has one does."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.depths = [0] * LANE_COUNT
        self.laid_down = list(WEIGHTS)
        self.history: list[int] = []

    @rule(lane=st.integers(0, LANE_COUNT - 1), count=st.integers(1, 130))
    def arrive(self, lane: int, count: int) -> None:
        self.depths[lane] += count

    @rule(limit=st.integers(0, 150))
    def poll(self, limit: int) -> None:
        wanted = [0] * LANE_COUNT
        for _ in range(min(limit, sum(self.depths))):
            wanted[self._next()] += 1
        before = [a + b for a, b in zip(self.depths, wanted, strict=True)]
        assert self.lanes.take(before, limit, 0) == wanted

    def _next(self) -> int:
        while True:
            for lane in range(LANE_COUNT):
                if self.depths[lane] and self.laid_down[lane] < WEIGHTS[lane]:
                    self.laid_down[lane] += 1
                    self.depths[lane] -= 1
                    self.history.append(lane)
                    return lane
            self.laid_down = [0] * LANE_COUNT

    @invariant()
    def everything_served_was_counted(self) -> None:
        assert sum(self.lanes.served_counts) == len(self.history)


TestLanesModel = LanesMachine.TestCase
TestLanesModel.settings = settings(deadline=None, max_examples=100, stateful_step_count=30)


def test_the_weights_are_those_of_the_specification() -> None:
    assert list(accumulate(WEIGHTS)) == [50, 75, 90, 97, 100]
