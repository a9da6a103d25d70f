"""Which leader wrote which offsets, and up to where a reader of an older epoch shares this log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.log.epochs import UNKNOWN_END, LeaderEpochs
from goqueue.model.errors import InvariantViolation

LOG_END = 100


@pytest.fixture
def epochs() -> LeaderEpochs:
    """Epochs 3 and 4 wrote nothing that is left."""
    return LeaderEpochs([(1, 10), (2, 20), (5, 50)])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (1, (1, 20)),
        (2, (2, 50)),
        (3, (2, 50)),
        (4, (2, 50)),
        (5, (5, LOG_END)),
    ],
)
def test_an_epoch_ends_where_the_next_begins_and_the_latest_at_the_log_end(
    epochs: LeaderEpochs, epoch: int, expected: tuple[int, int]
) -> None:
    assert epochs.end_of(epoch, LOG_END) == expected


def test_what_an_epoch_below_all_known_ones_wrote_is_gone_up_to_the_first(epochs: LeaderEpochs) -> None:
    assert epochs.end_of(0, LOG_END) == (0, 10)


@pytest.mark.parametrize("epoch", [6, 2**31 - 1, -1, -2])
def test_nothing_is_known_of_an_epoch_that_never_was(epochs: LeaderEpochs, epoch: int) -> None:
    assert epochs.end_of(epoch, LOG_END) == UNKNOWN_END == (-1, -1)


def test_nothing_is_known_where_nothing_was_written() -> None:
    assert LeaderEpochs().end_of(0, 0) == UNKNOWN_END
    assert LeaderEpochs([], latest=3).end_of(2, 0) == UNKNOWN_END


def test_a_latest_epoch_without_a_trace_shares_all_that_there_is() -> None:
    assert LeaderEpochs([(1, 10)], latest=4).end_of(3, LOG_END) == (1, LOG_END)
    assert LeaderEpochs([(1, 10)], latest=4).end_of(5, LOG_END) == UNKNOWN_END


def test_a_reader_that_stands_where_the_log_now_starts_goes_on_there() -> None:
    """Its last record was of an epoch that retention took away with the records."""
    epochs = LeaderEpochs([(3, 0), (4, 10)])
    epochs.forget_before(10)
    assert epochs.entries() == [(4, 10)]
    assert epochs.end_of(3, LOG_END) == (3, 10)


def test_the_epoch_that_covers_the_start_of_the_log_begins_there() -> None:
    epochs = LeaderEpochs([(1, 10), (2, 20), (5, 50)])
    epochs.forget_before(30)
    assert epochs.entries() == [(2, 30), (5, 50)]
    assert [epochs.at(offset) for offset in (29, 30, 49, 50, 999)] == [None, 2, 2, 5, 5]


def test_an_epoch_never_follows_one_that_is_not_smaller(epochs: LeaderEpochs) -> None:
    for epoch in (5, 4):
        with pytest.raises(InvariantViolation, match="does not follow 5"):
            epochs.begin(epoch, 60)


Write = tuple[int, int]  # how many epochs further, how many records


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=6), st.integers(-2, 25))
@settings(max_examples=300)
def test_ends_are_those_of_a_log_that_remembers_the_epoch_of_every_record(
    writes: list[Write], asked: int
) -> None:
    epochs, written = LeaderEpochs(), list[int]()
    epoch = -1
    for step, count in writes:
        epoch += step
        epochs.begin(epoch, len(written))
        written += [epoch] * count
    found, end = epochs.end_of(asked, len(written))
    if asked < 0 or asked > epoch:
        assert (found, end) == UNKNOWN_END
        return
    # Everything before the end is of the epoch or older, and nothing behind it is.
    assert end == sum(each <= asked for each in written)
    assert found <= asked
    if end:
        assert written[end - 1] <= found
