"""What very many records, members or dead letters at once must not cost others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.leases import POLICY, VISIBILITY_MS, Bench, check_counts, claims, copy_of

from goqueue.core.lease import decisions, moves
from goqueue.core.lease.decisions import extend, let_go, release, settle, tick
from goqueue.core.lease.events import Moved, Moving, Postponed
from goqueue.core.lease.policy import LeasePolicy
from goqueue.model.errors import LeaseExpired
from goqueue.model.priority import NORMAL, Priority

HASTY = replace(POLICY, retry_count_max=0)


def bench_with(count: int, policy: LeasePolicy = POLICY) -> Bench:
    bench = Bench(policy)
    bench.publish(count)
    bench.open()
    return bench


def ticked(bench: Bench) -> list[object]:
    decision = tick(
        bench.ledger, lambda group_id: HASTY if group_id == "hasty" else bench.policy, bench.now_ms
    )
    bench.write(decision)
    check_all(bench)
    return [*decision.events]


def check_all(bench: Bench) -> None:
    copy = copy_of(bench.ledger)
    for number, window in bench.ledger.windows.items():
        check_counts(window)
        check_counts(copy.windows[number])
        assert copy.windows[number].entries == window.entries
        assert copy.windows[number].in_flight == window.in_flight


def test_dead_letters_without_room_are_tried_again_later_and_others_of_the_group_end_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 0)
    bench = bench_with(3, HASTY)
    bench.lease(2)
    bench.policy = POLICY
    bench.lease(1, visibility_ms=VISIBILITY_MS + 500)
    bench.policy = HASTY
    bench.now_ms += VISIBILITY_MS
    assert ticked(bench) == []
    assert bench.ledger.next_tick_ms() == bench.now_ms + 500  # nothing is due all the time
    bench.policy = POLICY
    bench.now_ms += 500
    (event,) = ticked(bench)
    assert isinstance(event, Postponed)
    assert [offset for offset, _ in event.items] == [2]
    bench.policy = HASTY
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 1)
    bench.now_ms += 500
    (event,) = ticked(bench)
    assert isinstance(event, Moving)
    assert [letter.offset for letter in event.letters] == [0, 1]
    assert bench.ledger.next_tick_ms() is None


def test_what_waits_for_room_is_looked_at_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 0)
    bench = bench_with(1, HASTY)
    bench.lease(1)
    bench.now_ms += VISIBILITY_MS
    waits: list[int] = []
    for _ in range(8):
        assert ticked(bench) == []
        next_ms = bench.ledger.next_tick_ms()
        assert next_ms is not None
        waits.append(next_ms - bench.now_ms)
        bench.now_ms = next_ms
    assert waits == [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


@pytest.mark.parametrize("how", ["leaves", "gives up"])
def test_what_a_member_gives_up_and_cannot_move_is_nobodys_and_goes_when_it_can(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "OPEN_MOVE_COUNT_MAX", 1)
    bench = bench_with(150, HASTY)
    given = bench.lease(150)
    if how == "leaves":
        bench.write(let_go(bench.ledger, bench.window(), "m", policy=HASTY, now_ms=bench.now_ms))
    else:
        bench.write(
            extend(
                bench.ledger,
                bench.window(),
                claims(given),
                policy=HASTY,
                now_ms=bench.now_ms,
                timeout_ms=0,
            )
        )
    check_all(bench)
    assert sorted(bench.window().entries) == list(range(100, 150))
    (reply,) = settle(bench.window(), claims(given[149:]), now_ms=bench.now_ms).reply
    assert isinstance(reply, LeaseExpired)
    assert ticked(bench) == []
    bench.append(Moved(min(bench.ledger.moves)))
    bench.now_ms += 1_000
    (event,) = ticked(bench)
    assert isinstance(event, Moving)
    assert len(event.letters) == 50
    assert not bench.window().entries


def test_each_group_with_something_due_has_its_share_of_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "RECORDS_PER_TICK", 20)
    bench = bench_with(100)
    bench.open("hasty")
    for group in ("g", "hasty"):
        for _ in range(20):
            bench.lease(5, group_id=group)
    bench.now_ms += VISIBILITY_MS
    counts = [
        sum(len(one.items) if isinstance(one, Postponed) else len(one.letters) for one in events)
        for events in iter(lambda: [one for one in ticked(bench) if isinstance(one, Postponed | Moving)], [])
    ]
    assert counts == [20] * 10


def test_an_urgent_record_that_has_come_back_is_found_behind_very_many_that_are_not() -> None:
    bench = bench_with(3_000)
    bench.publish(1, lane=Priority.CRITICAL)
    given = bench.lease(3_001)
    bench.write(
        release(
            bench.ledger,
            bench.window(),
            claims([one for one in given if one.lane == NORMAL]),
            policy=POLICY,
            now_ms=bench.now_ms,
            delay_ms=0,
        )
    )
    urgent = claims([one for one in given if one.lane != NORMAL])
    bench.write(
        release(bench.ledger, bench.window(), urgent, policy=POLICY, now_ms=bench.now_ms, delay_ms=10)
    )
    bench.now_ms += 10
    assert bench.window().ready(Priority.CRITICAL, bench.now_ms, 1) == [3_000]
    seen: list[int] = []
    while some := bench.lease(100):
        seen += [one.offset for one in some]
    assert sorted(seen) == list(range(3_001))
    check_all(bench)


def test_what_two_members_have_prolonged_together_is_each_ones_own() -> None:
    bench = bench_with(6)
    given = bench.lease(3, member="a") + bench.lease(3, member="b")
    window = bench.window()
    bench.write(
        extend(bench.ledger, window, claims(given), policy=POLICY, now_ms=bench.now_ms, timeout_ms=60_000)
    )
    check_all(bench)
    assert (window.held_by("a"), window.held_by("b")) == ([0, 1, 2], [3, 4, 5])
    bench.write(let_go(bench.ledger, window, "a", policy=POLICY, now_ms=bench.now_ms))
    check_all(bench)
    assert window.in_flight == {"b": 3}
    bench.write(settle(window, claims(given[3:]), now_ms=bench.now_ms))
    check_all(bench)
    assert window.next_deadline_ms() is None


def test_a_lease_of_scattered_records_costs_no_more_than_what_is_left_of_it() -> None:
    bench = bench_with(0)
    for _ in range(500):
        bench.publish(1, lane=NORMAL)
        bench.publish(1, lane=Priority.CRITICAL)
    given = bench.lease(1_000)
    bench.write(settle(bench.window(), claims(given[:-1]), now_ms=bench.now_ms))
    ((_, lease),) = bench.window()._leases._leases.items()
    assert len(lease.runs) == 1
    check_all(bench)


def test_the_order_of_keys_begins_when_what_was_given_before_it_is_finished() -> None:
    bench = bench_with(0)
    for key in (1, 1, 2):
        bench.publish(1, key=key)
    first = bench.lease(1)
    bench.policy = replace(POLICY, keeps_key_order=True)
    assert bench.lease(10) == []
    bench.ledger = copy_of(bench.ledger)
    assert bench.lease(10) == []
    bench.now_ms += VISIBILITY_MS + 1_000
    ticked(bench)
    again = bench.lease(10)  # it alone comes
    assert [(one.offset, one.deliveries) for one in again] == [(first[0].offset, 2)]
    bench.write(settle(bench.window(), claims(again), now_ms=bench.now_ms))
    assert [one.offset for one in bench.lease(10)] == [1, 2]
    check_all(bench)


def test_records_without_a_key_do_not_keep_others_back_where_the_order_is_kept() -> None:
    bench = bench_with(2, replace(POLICY, keeps_key_order=True))
    assert len(bench.lease(1)) == 1
    assert len(bench.lease(1)) == 1
