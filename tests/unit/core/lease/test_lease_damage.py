"""A hole in a ledger's log: nothing is lost, and only what was in the hole comes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.leases import DEAD_LETTERS, POLICY, Bench, check_counts, copy_of, facts

from goqueue.core.lease.damage import Damage, Met, spanned
from goqueue.core.lease.decisions import (
    Claim,
    close_group,
    extend,
    release,
    seek,
    settle,
    tick,
)
from goqueue.core.lease.events import (
    REDRIVE,
    EntriesSaved,
    Event,
    Extended,
    Leased,
    Letter,
    Moving,
    Postponed,
    Settled,
    Target,
    Withdrawn,
    decode,
    offsets_of,
)
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import NO_KEY

IN_ORDER = LeasePolicy(dead_letters=DEAD_LETTERS, keeps_key_order=True)
LATER_MS = 1_000_000


def without(bench: Bench, *lost: int, found: bool = True) -> Ledger:
    """The ledger as its log gives it back when some events are damaged."""
    ledger = Ledger()
    for at, data in enumerate(bench.log):
        if at in lost:
            ledger.interrupt(1)
        else:
            ledger.apply(decode(data))
    mend(bench, ledger, found=found)
    return ledger


def mend(bench: Bench, ledger: Ledger, *, found: bool = True) -> None:
    damage = ledger.damage
    assert damage is not None
    ledger.mend(damage, _met(bench, damage) if found else None, {}, bench.now_ms)
    assert ledger.damage is None


def _met(bench: Bench, damage: Damage) -> list[Met]:
    if not damage.doubts():
        return []
    start, end = spanned(damage.doubts())
    return [Met(offset, *bench.records[offset]) for offset in range(max(start, bench.log_start), end)]


def drain(bench: Bench, ledger: Ledger, group_id: str = "g") -> list[int]:
    """What a group is given in the end, long after every lease is over. Everything is acknowledged at once."""
    bench.ledger = ledger
    bench.now_ms += LATER_MS
    offsets: list[int] = []
    for _ in range(50):
        bench.write(tick(ledger, lambda _: bench.policy, bench.now_ms))
        bench.now_ms += LATER_MS
        given = bench.lease(3, group_id=group_id)
        shown = [Claim(one.offset, one.deliveries) for one in given]
        if shown:
            assert bench.write(settle(bench.window(group_id), shown, now_ms=bench.now_ms)) == [None] * len(
                shown
            )
        offsets += [one.offset for one in given]
    assert bench.window(group_id).entries == {}
    assert facts(copy_of(ledger), bench.now_ms) == facts(ledger, bench.now_ms)
    for window in ledger.windows.values():
        check_counts(window)
    return offsets


def ready(count: int, policy: LeasePolicy = POLICY, key: int = NO_KEY) -> Bench:
    bench = Bench(policy)
    bench.publish(count, key=key)
    bench.open()
    return bench


def ack(bench: Bench, *offsets: int) -> None:
    shown = [Claim(offset) for offset in offsets]
    assert bench.write(settle(bench.window(), shown, now_ms=bench.now_ms)) == [None] * len(shown)


def nack(bench: Bench, offset: int) -> None:
    bench.write(
        release(bench.ledger, bench.window(), [Claim(offset)], policy=bench.policy, now_ms=bench.now_ms)
    )


def test_lost_lease_comes_again_and_what_was_finished_behind_it_does_not() -> None:
    bench = ready(9)
    bench.lease(3)  # event 1
    bench.lease(3)
    ack(bench, 3, 4, 5)
    ledger = without(bench, 1)
    assert sorted(ledger.windows[1].entries) == [0, 1, 2]
    assert sorted(drain(bench, ledger)) == [0, 1, 2, 6, 7, 8]


def test_record_of_a_lost_lease_that_was_finished_later_does_not_come_again() -> None:
    bench = ready(6)
    bench.lease(3)
    ack(bench, 1)
    bench.lease(1)
    ledger = without(bench, 1)
    assert ledger.windows[1].settled_count == 1
    assert sorted(drain(bench, ledger)) == [0, 2, 3, 4, 5]


def test_lost_ack_comes_again_and_nothing_else() -> None:
    bench = ready(6)
    bench.lease(6)
    ack(bench, 0, 1)
    ack(bench, 2, 3, 4, 5)
    assert sorted(drain(bench, without(bench, 2))) == [0, 1]


def test_lost_lease_at_the_end_leaves_its_records_fresh() -> None:
    bench = ready(6)
    bench.lease(4)
    assert sorted(drain(bench, without(bench, 1))) == [0, 1, 2, 3, 4, 5]


def test_lost_lease_counts_as_one_delivery() -> None:
    """So the receipt of one who got it then cannot finish what another gets now."""
    bench = ready(2)
    bench.lease(1)
    bench.lease(1)
    ledger = without(bench, 1)
    bench.ledger = ledger
    bench.write(tick(ledger, lambda _: bench.policy, bench.now_ms))
    bench.now_ms += POLICY.backoff_ms
    (again,) = bench.lease(1)
    assert (again.offset, again.deliveries) == (0, 2)


def test_lanes_are_in_doubt_one_by_one() -> None:
    bench = Bench()
    for lane in (2, 0, 2, 0, 2, 2):
        bench.publish(lane=lane)
    bench.open()
    bench.lease(2)
    first = bench.log[-1]
    bench.lease(2)
    event = decode(first)
    assert isinstance(event, Leased)
    held = {offset for one in event.seen for offset in range(one.start, one.start + one.length)}
    ledger = without(bench, 1)
    entries = ledger.windows[1].entries
    assert held <= set(entries)
    assert {entries[offset].lane == bench.records[offset][0] for offset in held} == {True}
    assert sorted(drain(bench, ledger)) == [0, 1, 2, 3, 4, 5]


def test_key_keeps_its_order_behind_a_lost_lease() -> None:
    bench = ready(3, IN_ORDER, key=7)
    bench.lease(1)
    bench.lease(2)  # the others of the key are held
    ledger = without(bench, 1)
    assert drain(bench, ledger) == [0, 1, 2]


def test_record_that_waits_for_a_lost_one_is_not_stuck() -> None:
    bench = ready(3, IN_ORDER, key=7)
    bench.lease(3)
    nack(bench, 0)
    bench.now_ms += LATER_MS
    bench.lease(1)
    ack(bench, 0)
    for lost in range(1, len(bench.log)):
        copy = Bench(IN_ORDER)
        copy.records, copy.log, copy.now_ms = bench.records, list(bench.log), bench.now_ms
        assert set(drain(copy, without(copy, lost))) >= {1, 2}


def test_lost_seek_back_is_made_good_by_what_follows() -> None:
    bench = ready(6)
    bench.lease(6)
    ack(bench, *range(6))
    bench.write(seek(bench.window(), 1))
    bench.lease(2)
    ledger = without(bench, 3)
    assert ledger.windows[1].incarnation == 1
    assert sorted(drain(bench, ledger)) == [1, 2, 3, 4, 5]


def test_group_whose_opening_is_lost_is_not_known_and_its_number_is_not_given_again() -> None:
    bench = ready(3)
    bench.lease(3)
    ledger = without(bench, 0)
    assert ledger.windows == {}
    bench.ledger = ledger
    assert bench.open().number > 1
    assert drain(bench, ledger) == [0, 1, 2]


def test_group_whose_end_is_lost_and_that_began_anew_is_one_group() -> None:
    bench = ready(3)
    bench.lease(2)
    bench.write(close_group(bench.ledger, "g"))
    bench.open()
    ledger = without(bench, 2)
    assert list(ledger.windows) == [2]
    assert sorted(drain(bench, ledger)) == [0, 1, 2]


def test_lost_move_leaves_its_record_and_the_next_has_a_sequence_of_its_own() -> None:
    policy = LeasePolicy(retry_count_max=0, dead_letters=DEAD_LETTERS)
    bench = ready(2, policy)
    bench.lease(2)
    nack(bench, 0)
    nack(bench, 1)
    ledger = Ledger()
    for data in bench.log[:-2]:
        ledger.apply(decode(data))
    ledger.interrupt(2)
    assert ledger.damage is not None
    ledger.mend(ledger.damage, [], {DEAD_LETTERS: 2}, bench.now_ms)
    assert sorted(ledger.windows[1].entries) == [0, 1]
    assert ledger.sequences == {DEAD_LETTERS: 2}


def test_moves_behind_a_hole_are_made_although_their_records_are_not_known() -> None:
    policy = LeasePolicy(retry_count_max=0, dead_letters=DEAD_LETTERS)
    bench = ready(2, policy)
    bench.lease(2)
    nack(bench, 0)
    ledger = without(bench, 1)
    assert [[letter.offset for letter in move.letters] for move in ledger.moves.values()] == [[0]]
    assert ledger.windows[1].moved_count == 1


def test_return_of_a_lost_redrive_changes_nothing() -> None:
    bench = ready(1)
    letters = [Letter(0, 0, 0, 0, "")]
    bench.append(Moving(REDRIVE, 1, letters, Target("orders", 0), 0, bench.now_ms, "", "redriven"))
    bench.append(Withdrawn(1))
    assert without(bench, 1).moves == {}


def test_too_much_doubt_sends_the_group_back() -> None:
    bench = ready(6)
    bench.lease(2)
    bench.lease(2)
    ack(bench, 2)
    ledger = without(bench, 1, found=False)
    assert ledger.windows[1].incarnation == 1
    assert drain(bench, ledger) == [0, 1, 2, 3, 4, 5]


def test_lost_part_of_a_snapshot_costs_nothing_where_the_one_before_it_is_there() -> None:
    bench = ready(6)
    bench.lease(3)
    ack(bench, 0)
    events: list[Event] = [decode(data) for data in bench.log]
    parts = list(bench.ledger.snapshot())
    assert any(isinstance(part, EntriesSaved) for part in parts)
    for lost in range(len(parts)):
        ledger = Ledger()
        for event in events:
            ledger.apply(event)
        for at, part in enumerate(parts):
            if at == lost:
                ledger.interrupt(1)
            else:
                ledger.apply(part)
        mend(bench, ledger)
        assert sorted(ledger.windows[1].entries) == [1, 2]


def _named(event: Event) -> set[int]:
    """The offsets that an event speaks of."""
    match event:
        case Leased():
            seen = {offset for one in event.seen for offset in range(one.start, one.start + one.length)}
            return seen | {offset for offset, _, _ in event.held}
        case Settled() | Extended():
            return set(offsets_of(event.runs))
        case Postponed():
            return {offset for offset, _ in event.items}
        case Moving():
            return {letter.offset for letter in event.letters}
        case _:
            return set()


_STEP = st.tuples(st.sampled_from(["lease", "ack", "nack", "extend", "tick", "publish"]), st.integers(0, 50))


@pytest.mark.parametrize("policy", [POLICY, IN_ORDER], ids=["any order", "by key"])
@given(data=st.data(), steps=st.lists(_STEP, min_size=4, max_size=25))
@settings(max_examples=150, deadline=None)
def test_whatever_is_lost_only_that_comes_again_and_nothing_is_left_out(
    policy: LeasePolicy, data: st.DataObject, steps: Sequence[tuple[str, int]]
) -> None:
    bench = Bench(policy)
    for at in range(8):
        bench.publish(lane=at % 3, key=at % 2)
    bench.open()
    for what, pick in steps:
        _STEPS[what](bench, pick)
    finished = _finished(bench)
    lost = data.draw(st.integers(1, len(bench.log) - 1)) if len(bench.log) > 1 else None
    if lost is None:
        return
    event = decode(bench.log[lost])
    ledger = without(bench, lost)
    moved = {letter.offset for move in ledger.moves.values() for letter in move.letters}
    again = set(drain(bench, ledger))
    moved_later = {letter.offset for move in ledger.moves.values() for letter in move.letters}
    everything = set(range(len(bench.records)))
    assert everything - finished <= again | moved_later, "lost"
    assert (again | moved_later - moved) & finished <= _named(event), "given again"


def _finished(bench: Bench) -> set[int]:
    window = bench.window()
    return {
        offset
        for offset, (lane, _) in enumerate(bench.records)
        if offset < window.cursors[lane] and offset not in window.entries
    }


def _leased(bench: Bench) -> list[int]:
    return [
        offset
        for offset, entry in sorted(bench.window().entries.items())
        if entry.is_leased and entry.until_ms > bench.now_ms
    ]


def _lease(bench: Bench, pick: int) -> None:
    bench.lease(1 + pick % 4)


def _ack(bench: Bench, pick: int) -> None:
    held = _leased(bench)
    if held:
        ack(bench, *held[: 1 + pick % len(held)])


def _nack(bench: Bench, pick: int) -> None:
    held = _leased(bench)
    if held:
        nack(bench, held[pick % len(held)])


def _extend(bench: Bench, pick: int) -> None:
    held = _leased(bench)
    if held:
        bench.write(
            extend(
                bench.ledger,
                bench.window(),
                [Claim(held[pick % len(held)])],
                policy=bench.policy,
                now_ms=bench.now_ms,
                timeout_ms=5_000,
            )
        )


def _tick(bench: Bench, pick: int) -> None:
    bench.now_ms += 10_000 * (pick % 5)
    bench.write(tick(bench.ledger, lambda _: bench.policy, bench.now_ms))


def _publish(bench: Bench, pick: int) -> None:
    bench.publish(lane=pick % 5, key=pick % 3)


_STEPS: dict[str, Callable[[Bench, int], None]] = {
    "lease": _lease,
    "ack": _ack,
    "nack": _nack,
    "extend": _extend,
    "tick": _tick,
    "publish": _publish,
}
