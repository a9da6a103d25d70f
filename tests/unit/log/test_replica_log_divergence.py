"""Two histories that part: the epochs alone tell a follower where, in a few rounds, however they went on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.log.epochs import NO_EPOCH, LeaderEpochs
from goqueue.model.errors import InvariantViolation

LOG_END = 100


@pytest.fixture
def epochs() -> LeaderEpochs:
    """Epochs 3 and 4 wrote nothing that is left."""
    return LeaderEpochs([(1, 10), (2, 20), (5, 50)])


@pytest.mark.parametrize(
    ("last_epoch", "offset"),
    [(1, 10), (1, 20), (2, 21), (2, 50), (5, 51), (5, LOG_END), (NO_EPOCH, 60), (0, 10)],
)
def test_a_follower_with_a_beginning_of_the_log_goes_on(
    epochs: LeaderEpochs, last_epoch: int, offset: int
) -> None:
    assert epochs.diverging(last_epoch, offset, LOG_END) is None


@pytest.mark.parametrize(
    ("last_epoch", "offset", "expected"),
    [
        (1, 21, (1, 20)),
        (2, 51, (2, 50)),
        (3, 45, (2, 50)),
        (4, 60, (2, 50)),
        (5, 101, (5, LOG_END)),
        (6, 90, (5, LOG_END)),
        (0, 11, (0, 10)),
        (NO_EPOCH, 101, (5, LOG_END)),
    ],
)
def test_another_follower_hears_where_the_largest_epoch_up_to_its_own_ends(
    epochs: LeaderEpochs, last_epoch: int, offset: int, expected: tuple[int, int]
) -> None:
    assert epochs.diverging(last_epoch, offset, LOG_END) == expected


def test_a_log_that_knows_no_epoch_has_nothing_behind_its_end() -> None:
    assert LeaderEpochs().diverging(3, 7, 7) is None
    assert LeaderEpochs().diverging(3, 8, 7) == (3, 7)
    assert LeaderEpochs().diverging(NO_EPOCH, 8, 7) == (NO_EPOCH, 7)


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [(5, 80, 80), (5, 200, LOG_END), (4, 80, 50), (2, 30, 30), (1, 70, 20), (0, 70, 10), (NO_EPOCH, 70, 70)],
)
def test_a_follower_cuts_what_it_has_of_later_epochs_and_what_is_behind_the_end(
    epochs: LeaderEpochs, epoch: int, end: int, expected: int
) -> None:
    assert epochs.common_end(epoch, end, LOG_END) == expected


def test_an_adopted_epoch_takes_the_place_of_those_that_wrote_nothing(epochs: LeaderEpochs) -> None:
    epochs.begin(8, 60)
    epochs.adopt(6, 60)
    assert (epochs.entries()[-1], epochs.latest, epochs.current) == ((6, 60), 8, 6)
    epochs.adopt(5, 60)
    assert epochs.entries() == [(1, 10), (2, 20), (5, 50)]
    with pytest.raises(InvariantViolation, match="4 at 60 does not follow 5"):
        epochs.adopt(4, 60)
    epochs.adopt(2, 40)
    assert epochs.entries() == [(1, 10), (2, 20)]
    assert epochs.latest == 8


@dataclass
class History:
    """A log that remembers the epoch of every record, next to the pairs that have to say the same. An offset of an epoch was
    written once, so two records are the same if both are equal."""

    written: list[int] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    def write(self, epoch: int, count: int) -> None:
        self.epochs.adopt(epoch, len(self.written))
        self.written += [epoch] * count

    def cut(self, end: int) -> None:
        del self.written[end:]
        self.epochs.truncate(end)

    @property
    def last_epoch(self) -> int:
        return self.written[-1] if self.written else NO_EPOCH


def common_count(one: History, other: History) -> int:
    """The naive way: record by record."""
    count = 0
    for first, second in zip(one.written, other.written, strict=False):
        if first != second:
            break
        count += 1
    return count


COUNTS = st.lists(st.integers(0, 4), max_size=4)
# How many records the leader (True) or the follower wrote in the epochs after they parted.
PARTED = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=7)


@given(common=COUNTS, goes_on=st.integers(0, 3), is_leader=st.booleans(), parted=PARTED)
@settings(max_examples=600, deadline=None)
def test_a_follower_is_cut_to_what_both_have_in_a_round_per_epoch_at_most(
    common: list[int], goes_on: int, is_leader: bool, parted: list[tuple[bool, int]]
) -> None:
    leader, follower = History(), History()
    for epoch, count in enumerate(common):
        leader.write(epoch, count)
        follower.write(epoch, count)
    if common:  # one of them has more of the last common epoch
        (leader if is_leader else follower).write(len(common) - 1, goes_on)
    for epoch, (writes, count) in enumerate(parted, start=len(common)):
        (leader if writes else follower).write(epoch, count)
    leader.epochs.begin(100, len(leader.written))
    shared = common_count(leader, follower)
    rounds = 0
    while True:
        end = len(follower.written)
        diverging = leader.epochs.diverging(follower.last_epoch, end, len(leader.written))
        if diverging is None:
            break
        follower.cut(follower.epochs.common_end(*diverging, end))
        assert len(follower.written) < end
        rounds += 1
    assert len(follower.written) == shared
    assert rounds <= len(common) + len(parted) + 1


@given(common=COUNTS, parted=PARTED, gone=st.integers(0, 20), forgotten=st.integers(0, 20))
@settings(max_examples=400, deadline=None)
def test_what_is_gone_from_the_start_of_either_log_is_never_taken_for_a_difference_behind_it(
    common: list[int], parted: list[tuple[bool, int]], gone: int, forgotten: int
) -> None:
    leader, follower = History(), History()
    for epoch, count in enumerate(common):
        leader.write(epoch, count)
        follower.write(epoch, count)
    for epoch, (writes, count) in enumerate(parted, start=len(common)):
        (leader if writes else follower).write(epoch, count)
    leader.epochs.begin(100, len(leader.written))
    shared = common_count(leader, follower)
    leader_start, follower_start = min(gone, len(leader.written)), min(forgotten, len(follower.written))
    leader.epochs.forget_before(leader_start)
    follower.epochs.forget_before(follower_start)
    end = len(follower.written)
    for _ in range(20):
        last_epoch = follower.epochs.at(end - 1) if end > follower_start else None
        diverging = leader.epochs.diverging(
            NO_EPOCH if last_epoch is None else last_epoch, end, len(leader.written)
        )
        if diverging is None:
            break
        cut = follower.epochs.common_end(*diverging, end)
        assert cut < end
        end = cut
        follower.epochs.truncate(end)
        follower_start = min(follower_start, end)
    else:
        raise AssertionError("it takes too many rounds")
    if end > max(follower_start, leader_start):
        assert end <= shared
    if max(follower_start, leader_start) <= shared:
        assert end >= min(shared, len(follower.written))
