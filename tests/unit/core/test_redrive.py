"""Which dead letters go back, and what the ledger knows of it; also of the sets it keeps that in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.leases import Bench, copy_of

from goqueue.core import redrive as redrive_module
from goqueue.core.dead_letter import Origin
from goqueue.core.lease import moves as moves_module
from goqueue.core.lease.decisions import Claim, reject
from goqueue.core.lease.events import Moved, Moving, ProducerNamed, Target, Withdrawn, decode, encode
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.spans import Spans
from goqueue.core.redrive import RedriveFilter, redrive, trim_redriven
from goqueue.model.errors import LimitExceeded
from goqueue.model.record import StoredRecord

HOME, AWAY = Target("orders", 0), Target("fixed", 1)
RECORD = StoredRecord(3, 5_000, b"k", b"v", (("tenant", b"acme"),))
ORIGIN = Origin("orders", 1, 7, "workers", "rejected", "smtp: timeout")


def send(bench: Bench, wanted: dict[Target, list[int]]) -> list[Moving]:
    decision = redrive(bench.ledger, wanted, bench.now_ms)
    bench.write(decision)
    return [event for event in decision.events if isinstance(event, Moving)]


@pytest.mark.parametrize(
    ("wanted", "is_match"),
    [
        (RedriveFilter(), True),
        (RedriveFilter(reason="rejected", group="workers", error_contains="time", key=b"k"), True),
        (RedriveFilter(partition=1, offset_start=7, offset_end=8, time_start_ms=5_000), True),
        (RedriveFilter(headers={"tenant": b"acme"}, time_end_ms=5_001), True),
        (RedriveFilter(reason="retries exhausted"), False),
        (RedriveFilter(group="others"), False),
        (RedriveFilter(error_contains="Time"), False),
        (RedriveFilter(key=b""), False),
        (RedriveFilter(partition=0), False),
        (RedriveFilter(offset_start=8), False),
        (RedriveFilter(offset_end=7), False),
        (RedriveFilter(time_start_ms=5_001), False),
        (RedriveFilter(time_end_ms=5_000), False),
        (RedriveFilter(headers={"tenant": b"acme", "color": b"red"}), False),
    ],
)
def test_a_filter_wants_everything_that_it_names(wanted: RedriveFilter, is_match: bool) -> None:
    assert wanted.matches(RECORD, ORIGIN) is is_match


def test_what_went_once_does_not_go_again_and_one_event_has_one_target() -> None:
    bench = Bench()
    assert [(one.target, len(one.letters)) for one in send(bench, {HOME: [0, 1, 4], AWAY: [2]})] == [
        (HOME, 3),
        (AWAY, 1),
    ]
    (late,) = send(bench, {HOME: [0, 2, 3, 4, 5]})
    assert [letter.offset for letter in late.letters] == [3, 5]
    assert late.sequence == 3


def test_a_withdrawn_redrive_may_be_made_again_and_a_done_one_may_not() -> None:
    bench = Bench()
    (first,) = send(bench, {HOME: [0, 1, 2]})
    (second,) = send(bench, {AWAY: [3]})
    bench.append(Withdrawn(first.serial))
    bench.append(Moved(second.serial))
    assert bench.ledger.moves == {}
    (again,) = send(bench, {AWAY: [0, 1, 2, 3]})
    assert [letter.offset for letter in again.letters] == [0, 1, 2]


def test_what_was_redriven_outlives_the_log_and_a_snapshot() -> None:
    bench = Bench()
    send(bench, {HOME: [0, 1, 5, 6, 9]})
    bench.write(trim_redriven(bench.ledger, 6))
    assert trim_redriven(bench.ledger, 6).events == []
    replayed = Ledger()
    for data in bench.log:
        replayed.apply(decode(data))
    restored = Ledger()
    for part in bench.ledger.snapshot():
        restored.apply(decode(encode(part)))
    for one in (bench.ledger, replayed, restored, copy_of(bench.ledger)):
        assert [tuple(run) for run in one.redriven.runs()] == [(6, 1), (9, 1)]
        assert one.moves == bench.ledger.moves
        assert one.sequences == {HOME: 5}


def test_a_new_producer_goes_on_with_the_sequences() -> None:
    """Moves that are open have theirs, so a second one must not get the same."""
    bench = Bench()
    bench.publish(2)
    window = bench.open()
    bench.lease()
    for offset in range(2):
        claims = [Claim(offset)]
        decision = reject(bench.ledger, window, claims, policy=bench.policy, now_ms=bench.now_ms, reason="x")
        bench.write(decision)
        bench.append(ProducerNamed(1, 0))
    assert [move.sequence for move in bench.ledger.moves.values()] == [0, 1]


def test_sequences_begin_again_where_they_end() -> None:
    bench = Bench()
    bench.ledger.sequences[HOME] = 2**31 - 2
    (first,) = send(bench, {HOME: [0, 1, 2]})
    (second,) = send(bench, {HOME: [3]})
    assert (first.sequence, second.sequence) == (2**31 - 2, 1)


def test_moves_and_the_pieces_of_what_was_redriven_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(moves_module, "OPEN_MOVE_COUNT_MAX", 2)
    send(bench, {HOME: [0], AWAY: [2]})
    with pytest.raises(LimitExceeded, match="2 moves wait already"):
        redrive(bench.ledger, {HOME: [4]}, 0)
    for serial in list(bench.ledger.moves):
        bench.append(Moved(serial))
    monkeypatch.setattr(redrive_module, "RUN_COUNT_MAX", 2)
    with pytest.raises(LimitExceeded, match="in 2 pieces"):
        redrive(bench.ledger, {HOME: [4]}, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "discard", "forget"]), st.integers(0, 30), st.integers(1, 6)),
        max_size=30,
    )
)
def test_a_set_of_spans_is_a_set(steps: list[tuple[str, int, int]]) -> None:
    spans, model = Spans(), set[int]()
    for step, start, length in steps:
        match step:
            case "add":
                spans.add(start, length)
                model |= set(range(start, start + length))
            case "discard":
                spans.discard(start)
                model.discard(start)
            case _:
                spans.forget_before(start)
                model -= set(range(start))
        assert {at for at in range(40) if at in spans} == model
        runs = spans.runs()
        assert all(run.length > 0 for run in runs)
        assert all(one.start + one.length < two.start for one, two in pairwise(runs))
        assert spans.run_count == len(runs)
        for at in range(40):
            assert spans.first_outside(at) == min(set(range(at, 50)) - model)
            assert spans.count_from(at) == len([one for one in model if one >= at])
