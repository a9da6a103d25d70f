"""A schedule against a plain dict: crashes, restarts, cancels and jumps of the clock in any order. What a replay of its log
gives is what it was, and everything is delivered once or cancelled, never early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.core.schedule.events import Event, Firing, Removed, Scheduled
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.schedule.states import State
from goqueue.core.schedule.wheel import Due
from goqueue.model.errors import ScheduleFired, ScheduleNotFound
from goqueue.model.record import Producer

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
_DELAYS = st.one_of(st.integers(1, 500), st.integers(1, 100_000), st.integers(1, 30 * DAY_MS))


class Schedules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.log: list[Event] = []
        self.schedule = Schedule()
        self.waiting: dict[int, int] = {}  # id to when it is due
        self.cancelled: set[int] = set()
        self.delivered: list[int] = []  # as the partition has them
        self.batches: set[tuple[int, int]] = set()  # producer and sequence, as the partition remembers them
        self.producers = 0
        self.forgotten: set[int] = set()  # compaction took what would tell that they were fired

    # ------------------------------------------------------------ what clients do

    @rule(delays=st.lists(_DELAYS, min_size=1, max_size=5))
    def publish(self, delays: list[int]) -> None:
        for delay_ms in delays:
            id = len(self.log)
            self.write([Scheduled(id, self.now_ms + delay_ms, 2)])
            self.waiting[id] = self.now_ms + delay_ms

    @rule(pick=st.integers(0, 10_000))
    def cancel(self, pick: int) -> None:
        id = pick % (len(self.log) + 2)
        firing = self.schedule.firing.ids if self.schedule.firing is not None else []
        if id in self.waiting and id not in firing:
            self.write([self.schedule.cancel(id)])
            del self.waiting[id]
            self.cancelled.add(id)
        elif (id in self.delivered or id in firing) and id not in self.forgotten:
            with pytest.raises(ScheduleFired):
                self.schedule.cancel(id)
        else:
            with pytest.raises(ScheduleNotFound):
                self.schedule.cancel(id)

    # ------------------------------------------------------------ what time does

    @rule(pass_ms=st.one_of(st.integers(0, 1_000), st.integers(0, 20 * DAY_MS), st.integers(-5_000, 0)))
    def tick(self, pass_ms: int) -> None:
        self.now_ms += pass_ms

    @rule()
    def wait_for_the_next(self) -> None:
        next_ms = self.schedule.next_ms()
        if next_ms is not None:
            self.now_ms = max(self.now_ms, next_ms)

    # ------------------------------------------------------------ what the shell does

    @rule(count_max=st.integers(1, 4))
    def decide_to_fire(self, count_max: int) -> None:
        if self.schedule.firing is not None:
            return
        while self.schedule.wheel.advance(self.now_ms):
            pass
        self.schedule.ripen(self.now_ms)
        sizes = {one.id: 1 for one in self.schedule.ripe}
        producer = self.schedule.producer() or self.next_producer()
        firing = self.schedule.fire(sizes, bytes_max=count_max, producer=producer, now_ms=self.now_ms)
        due = sorted(id for id, due_ms in self.waiting.items() if -(-due_ms // 10) * 10 <= self.now_ms)
        assert (firing is None) == (not due)
        if firing is not None:
            assert all(self.waiting[id] <= self.now_ms for id in firing.ids)
            assert len(firing.ids) == min(count_max, len(due))
            self.write([firing])

    @rule()
    def deliver(self) -> None:
        """It may be done again after a crash: the partition recognises it."""
        firing = self.schedule.firing
        if firing is None:
            return
        if (firing.producer_id, firing.sequence) not in self.batches:
            self.batches.add((firing.producer_id, firing.sequence))
            self.delivered += firing.ids

    @rule()
    def finish(self) -> None:
        firing = self.schedule.firing
        if firing is None or (firing.producer_id, firing.sequence) not in self.batches:
            return
        self.write(self.schedule.fired(firing))
        for id in firing.ids:
            del self.waiting[id]

    @rule(pick=st.integers(0, 100))
    def lose_a_record_of_a_firing(self, pick: int) -> None:
        firing = self.schedule.firing
        if firing is None or not firing.ids or (firing.producer_id, firing.sequence) in self.batches:
            return
        lost = firing.ids[pick % len(firing.ids)]
        rest = [id for id in firing.ids if id != lost]
        again = Firing(rest, firing.now_ms, firing.producer_id, firing.epoch, firing.sequence)
        self.write([again, Removed(lost)])
        del self.waiting[lost]
        self.cancelled.add(lost)

    @rule(is_compacted=st.booleans())
    def restart(self, is_compacted: bool) -> None:
        self.forgotten = set()
        if is_compacted:
            self.forgotten = {id for id in self.delivered if id not in self.waiting}
        self.schedule = self.replayed(self.compacted() if is_compacted else self.log)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def everything_is_in_one_place(self) -> None:
        firing = self.schedule.firing.ids if self.schedule.firing is not None else []
        states = self.schedule.states
        pending = {id for id in self.waiting if id not in firing}
        assert pending == {id for id in range(len(self.log)) if states.get(id) is State.PENDING}
        assert states.pending_count == len(pending)
        assert self.schedule.waiting_count == len(self.waiting)
        assert len(self.delivered) == len(set(self.delivered))
        assert not set(self.delivered) & self.cancelled

    @invariant()
    def what_is_pending_is_in_the_wheel_once(self) -> None:
        assert _indexed(self.schedule) == sorted(
            Due(due_ms, id) for id, due_ms in self.waiting.items() if self.schedule.states.is_pending(id)
        )

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        for log in (self.log, self.compacted()):
            again = self.replayed(log)
            assert _indexed(again) == _indexed(self.schedule)
            assert (again.firing, again.last_fired, again.taken) == (
                self.schedule.firing,
                self.schedule.last_fired,
                self.schedule.taken,
            )

    def write(self, events: Sequence[Event]) -> None:
        for event in events:
            self.log.append(event)
            self.schedule.apply(event, self.now_ms)

    def replayed(self, log: Sequence[Event | None]) -> Schedule:
        schedule = Schedule()
        for event in log:
            if event is not None:
                schedule.apply(event, self.now_ms)
        return schedule

    def compacted(self) -> list[Event | None]:
        """Of each key the newest, and no tombstones."""
        gone = {event.id for event in self.log if isinstance(event, Removed)}
        newest_firing = max(
            (at for at, event in enumerate(self.log) if not isinstance(event, Scheduled | Removed)),
            default=-1,
        )
        return [
            event if at == newest_firing or (isinstance(event, Scheduled) and event.id not in gone) else None
            for at, event in enumerate(self.log)
        ]

    def next_producer(self) -> Producer:
        self.producers += 1
        return Producer(self.producers, 0, 0)


def _indexed(schedule: Schedule) -> list[Due]:
    wheel = [one for part in schedule.wheel.parts() for one in part.pairs()]
    return sorted(one for one in (*wheel, *schedule.ripe) if schedule.states.is_pending(one.id))


Schedules.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSchedules = Schedules.TestCase


def test_a_batch_that_was_taken_is_recognised_until_five_others_came() -> None:
    schedule = Schedule()
    for number in range(6):
        producer = Producer(7, 1, 10 * number)
        for event in schedule.take_from(producer, 10, first_id=100 * number, positions=[1, 4]):
            schedule.apply(event, START_MS)
    assert schedule.find_taken(Producer(7, 1, 0), 10) is None
    found = schedule.find_taken(Producer(7, 1, 50), 10)
    assert found is not None
    assert (found.first_id, found.positions) == (500, [1, 4])
    assert schedule.find_taken(Producer(7, 1, 50), 9) is None
    assert schedule.find_taken(Producer(7, 2, 50), 10) is None
    (event,) = schedule.take_from(Producer(7, 2, 0), 10, first_id=0, positions=[0])
    assert len(event.batches) == 1  # a new epoch begins anew


def test_only_so_many_producers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.core.schedule.schedule.TAKEN_PRODUCERS_MAX", 2)
    schedule = Schedule()
    for id in (1, 2, 1, 3):
        for event in schedule.take_from(Producer(id, 0, 0), 1, first_id=0, positions=[0]):
            schedule.apply(event, START_MS)
    assert sorted(schedule.taken) == [1, 3]


def test_a_clock_that_jumps_back_after_a_record_ripened_does_not_make_it_early() -> None:
    schedule = Schedule()
    schedule.apply(Scheduled(0, START_MS + 100, 2), START_MS)
    schedule.ripen(START_MS + 100)
    assert [one.id for one in schedule.ripe] == [0]
    producer = Producer(1, 0, 0)
    assert schedule.fire({0: 1}, bytes_max=9, producer=producer, now_ms=START_MS + 99) is None
    assert schedule.fire({0: 1}, bytes_max=9, producer=producer, now_ms=START_MS + 100) is not None
