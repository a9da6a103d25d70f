"""What becomes of leased records: retries, dead letters, order of keys, lanes, clocks, and what the log gives back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.leases import DEAD_LETTERS, POLICY, VISIBILITY_MS, Bench, claims, copy_of, facts

from goqueue.core.lease import decisions
from goqueue.core.lease.decisions import (
    Claim,
    Fresh,
    Nacked,
    close_group,
    extend,
    lease,
    let_go,
    release,
    settle,
    tick,
    trim,
)
from goqueue.core.lease.events import Leased, Moving, Postponed, Sought, decode, encode, offsets_of, runs_of
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import NO_KEY
from goqueue.model.errors import InvariantViolation, LimitExceeded, MessageSettled, ReceiptNotFound
from goqueue.model.priority import LANE_COUNT, Priority

IN_ORDER = LeasePolicy(dead_letters=DEAD_LETTERS, keeps_key_order=True)


def bench_with(count: int, policy: LeasePolicy = POLICY) -> Bench:
    bench = Bench(policy)
    bench.publish(count)
    bench.open()
    return bench


def nack(bench: Bench, *shown: Claim) -> list[Nacked]:
    decision = release(
        bench.ledger, bench.window(), shown, policy=bench.policy, now_ms=bench.now_ms, reason="no"
    )
    return [reply for reply in bench.write(decision) if isinstance(reply, Nacked)]


def ack(bench: Bench, *offsets: int) -> None:
    shown = [Claim(offset) for offset in offsets]
    assert bench.write(settle(bench.window(), shown, now_ms=bench.now_ms)) == [None] * len(shown)


def offsets(bench: Bench, limit: int = 10) -> list[int]:
    return [one.offset for one in bench.lease(limit)]


@given(st.sets(st.integers(0, 300)))
def test_runs_hold_the_same_offsets(found: set[int]) -> None:
    runs = runs_of(sorted(found))
    assert list(offsets_of(runs)) == sorted(found)
    assert all(one.start + one.length < other.start for one, other in pairwise(runs))


def test_what_held_nothing_for_the_group_is_finished_by_a_poll_in_vain_and_once() -> None:
    """Markers of transactions, say, or what a lane was not looked at for when its last record died."""
    bench = bench_with(3)
    aborted = tuple(Fresh([], 3) for _ in range(LANE_COUNT))
    for committed_offset in (3, 3):
        decision = lease(
            bench.ledger,
            bench.window(),
            "m",
            aborted,
            limit=10,
            visibility_ms=1_000,
            now_ms=bench.now_ms,
            policy=bench.policy,
        )
        assert bench.write(decision) == []
        assert bench.window().committed_offset == committed_offset
    assert len(bench.log) == 2  # the group's opening, and that


def test_backoff_doubles_from_one_second_to_a_minute() -> None:
    waits = [POLICY.backoff_after(deliveries) for deliveries in range(1, 9)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert POLICY.backoff_after(1_000_000) == 60_000


def test_record_is_dead_after_its_last_retry_and_once() -> None:
    bench = bench_with(1)
    for delivery, wait_ms in ((1, 1_000), (2, 2_000), (3, 4_000)):
        (one,) = bench.lease()
        assert one.deliveries == delivery
        (reply,) = nack(bench, Claim(0, delivery))
        assert (reply.is_dead, reply.visible_ms - bench.now_ms) == (False, wait_ms)
        bench.now_ms += wait_ms - 1
        assert not bench.lease()
        bench.now_ms += 1
    assert bench.lease()[0].deliveries == 4
    (reply,) = nack(bench, Claim(0, 4))
    assert reply.is_dead
    assert [move.letters[0].deliveries for move in bench.ledger.moves.values()] == [4]
    bench.now_ms += 100_000
    assert not bench.lease()
    assert not nack(bench, Claim(0, 4))
    assert bench.window().committed_offset == 1


def test_expired_lease_comes_back_after_its_backoff() -> None:
    bench = bench_with(2)
    bench.lease(1)
    bench.now_ms += VISIBILITY_MS
    (event,) = tick(bench.ledger, lambda _: POLICY, bench.now_ms).events
    assert event == Postponed(1, [(0, bench.now_ms + 1_000)], True, "the visibility timeout passed")


@pytest.mark.parametrize("how", ["nack", "leave", "give up", "expire"])
def test_dead_letter_comes_at_the_limit_however_the_delivery_ended(how: str) -> None:
    bench = bench_with(1, LeasePolicy(retry_count_max=0, dead_letters=DEAD_LETTERS))
    bench.lease()
    window = bench.window()
    match how:
        case "nack":
            nack(bench, Claim(0, 1))
        case "leave":
            bench.write(let_go(bench.ledger, window, "m", policy=bench.policy, now_ms=bench.now_ms))
        case "give up":
            zero = extend(
                bench.ledger, window, [Claim(0, 1)], policy=bench.policy, now_ms=bench.now_ms, timeout_ms=0
            )
            bench.write(zero)
        case "expire":
            bench.now_ms += VISIBILITY_MS
            bench.write(tick(bench.ledger, lambda _: bench.policy, bench.now_ms))
    assert [move.target for move in bench.ledger.moves.values()] == [DEAD_LETTERS]
    bench.now_ms += 100_000
    assert not bench.lease()


def test_without_dead_letters_retries_never_end() -> None:
    bench = bench_with(1, LeasePolicy(retry_count_max=0))
    for delivery in range(1, 20):
        assert bench.lease()[0].deliveries == delivery
        nack(bench, Claim(0, delivery))
        bench.now_ms += 60_000


def test_many_dead_letters_leave_in_batches_with_sequences_in_a_row() -> None:
    bench = bench_with(250, LeasePolicy(retry_count_max=0, dead_letters=DEAD_LETTERS))
    nack(bench, *claims(bench.lease(250)))
    moves = [bench.ledger.moves[serial] for serial in sorted(bench.ledger.moves)]
    assert [(len(move.letters), move.sequence) for move in moves] == [(100, 0), (100, 100), (50, 200)]
    assert bench.ledger.sequences == {DEAD_LETTERS: 250}


def test_what_waits_is_not_forgotten_when_the_clock_is_set_back() -> None:
    bench = bench_with(1)
    bench.lease()
    nack(bench, Claim(0, 1))
    bench.now_ms += 1_000
    assert bench.window().ready(Priority.NORMAL, bench.now_ms, 1) == [0]
    bench.now_ms -= 500
    assert not bench.lease()
    bench.now_ms += 500
    assert offsets(bench) == [0]


def test_full_window_gives_what_has_come_back_and_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "ENTRY_COUNT_MAX", 10)
    bench = bench_with(20)
    bench.lease(10)
    with pytest.raises(LimitExceeded, match="10 unfinished records"):
        bench.lease(1)
    nack(bench, Claim(3, 1))
    bench.now_ms += 1_000
    cursors = bench.window().cursors
    assert offsets(bench, 5) == [3]
    assert bench.window().cursors == cursors


def test_one_slow_record_does_not_stop_its_partition() -> None:
    bench = bench_with(100)
    assert offsets(bench, 1) == [0]
    for _ in range(99):
        (offset,) = offsets(bench, 1)
        ack(bench, offset)
    assert bench.window().committed_offset == 0
    assert len(bench.window().entries) == 1
    ack(bench, 0)
    assert bench.window().committed_offset == 100


def test_receipt_of_a_finished_record_and_one_that_was_never_given_have_answers_of_their_own() -> None:
    bench = bench_with(2)
    ack(bench, *offsets(bench, 1))
    decision = settle(bench.window(), [Claim(0, 1), Claim(7, 1)], now_ms=bench.now_ms)
    assert [type(reply) for reply in decision.reply] == [MessageSettled, ReceiptNotFound]
    assert decision.events == []


class TestOrderOfKeys:
    def test_one_record_of_a_key_is_under_way_and_retries_keep_the_order(self) -> None:
        bench = Bench(IN_ORDER)
        bench.publish(3, key=7)
        bench.publish(1, key=8)
        bench.open()
        assert offsets(bench) == [0, 3]
        nack(bench, Claim(0, 1))
        assert offsets(bench) == []
        bench.now_ms += 1_000
        assert offsets(bench) == [0]
        ack(bench, 0)
        assert offsets(bench) == [1]

    def test_records_without_a_key_have_no_order(self) -> None:
        bench = Bench(IN_ORDER)
        bench.publish(3, key=NO_KEY)
        bench.open()
        assert offsets(bench) == [0, 1, 2]

    def test_snapshot_keeps_whose_turn_it_is_when_lanes_overtook(self) -> None:
        bench = Bench(IN_ORDER)
        bench.publish(1, key=7, lane=Priority.LOW)
        bench.publish(2, key=7, lane=Priority.CRITICAL)
        bench.open()
        assert offsets(bench) == [1]
        copy = copy_of(bench.ledger)
        ack(bench, 1)
        copy.apply(decode(bench.log[-1]))
        assert facts(copy, bench.now_ms) == facts(bench.ledger, bench.now_ms)
        assert len(offsets(bench)) == 1

    def test_retention_of_one_that_is_held_frees_nobody(self) -> None:
        bench = Bench(IN_ORDER)
        bench.publish(2, key=7, lane=Priority.LOW)
        bench.publish(1, key=7, lane=Priority.CRITICAL)
        bench.open()
        assert offsets(bench) == [2]
        assert sorted(bench.window().entries) == [0, 1, 2]
        bench.write(trim(bench.window(), 1))
        assert offsets(bench) == []
        ack(bench, 2)
        assert offsets(bench) == [1]


class TestLanes:
    def test_shares_are_as_the_weights_say(self) -> None:
        bench = Bench()
        for lane in Priority:
            bench.publish(200, lane=lane)
        bench.open()
        given = bench.lease(100)
        assert [sum(one.lane == lane for one in given) for lane in Priority] == [50, 25, 15, 7, 3]

    def test_cursor_of_a_lane_stops_at_what_was_not_given(self) -> None:
        bench = Bench()
        bench.publish(3, lane=Priority.LOW)
        bench.publish(3, lane=Priority.HIGH)
        bench.open()
        assert offsets(bench, 2) == [3, 4]
        assert bench.window().cursors == (6, 5, 6, 0, 6)
        assert sorted(offsets(bench)) == [0, 1, 2, 5]

    def test_lease_is_one_event_of_runs(self) -> None:
        bench = Bench()
        bench.publish(500)
        bench.open()
        decision = bench.leasing(500)
        (event,) = decision.events
        assert isinstance(event, Leased)
        assert len(event.seen) == 1
        assert len(encode(event)) < 100


def test_event_of_a_group_that_was_deleted_meanwhile_is_void() -> None:
    bench = bench_with(2)
    decision = bench.leasing()
    late = settle(bench.window(), [Claim(0, 1)], now_ms=bench.now_ms)
    bench.write(close_group(bench.ledger, "g"))
    bench.write(decision)
    bench.write(late)
    assert bench.ledger.windows == {}
    with pytest.raises(InvariantViolation, match="never opened"):
        bench.append(Sought(9, 0))


class TestLostEvents:
    def test_snapshot_without_one_of_its_parts_does_not_count(self) -> None:
        bench = bench_with(10)
        bench.lease(3)
        parts = list(bench.ledger.snapshot())
        for lost in range(len(parts)):
            ledger = copy_of(bench.ledger)
            before = facts(ledger, bench.now_ms)
            for part in parts[:lost]:
                ledger.apply(part)
            ledger.interrupt(1)
            for part in parts[lost + 1 :]:
                ledger.apply(part)
            assert facts(ledger, bench.now_ms) == before
            assert ledger.damage is not None
            assert ledger.damage.doubts() == []

    def test_move_that_is_not_done_is_in_the_snapshot(self) -> None:
        bench = bench_with(1, LeasePolicy(retry_count_max=0, dead_letters=DEAD_LETTERS))
        bench.lease()
        nack(bench, Claim(0, 1))
        (move,) = copy_of(bench.ledger).moves.values()
        assert isinstance(move, Moving)
        assert move.letters[0].offset == 0
