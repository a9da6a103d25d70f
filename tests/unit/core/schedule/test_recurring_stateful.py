"""Recurring schedules against plain lists of due times: crashes at every step, restarts from a compacted log, deletes and skips
while a firing is under way, jumps of the clock. What a replay gives is what there was; every due time is fired once, or
skipped, or one of those that a later firing stands for."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from goqueue.core.schedule.events import Event, Fired, Firing, Removed, Scheduled, decode, encode
from goqueue.core.schedule.recurring import (
    EveryTimes,
    Recurring,
    RecurringRemoved,
    after_firing,
    after_skipping,
    first_ms,
    grid_ms,
)
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.schedule.states import WAITING, State
from goqueue.model.record import Producer
from goqueue.model.recurrence import EveryRule, Recurrence

START_MS = 1_700_000_000_000
_NAMES = st.sampled_from(["a", "b", "c"])


@dataclass
class Life:
    """One schedule from when it was made until it was deleted, as the partition and the client saw it."""

    recurrence: Recurrence
    every_ms: int
    grid_ms: int
    due: list[int] = field(default_factory=list)  # of what was delivered
    fired_ms: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)

    def points(self, after_ms: int, last_ms: int) -> list[int]:
        """Its due times, counted one by one."""
        found, at_ms = [], self.grid_ms
        while at_ms <= last_ms:
            if at_ms > after_ms and (self.recurrence.end_ms is None or at_ms < self.recurrence.end_ms):
                found.append(at_ms)
            at_ms += self.every_ms
        return found


class Recurrings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.log: list[Event] = []
        self.schedule = Schedule()
        self.lives: dict[str, Life] = {}
        self.records: dict[int, tuple[Life, int]] = {}  # id to whose it is, and when it is due
        self.batches: set[int] = set()  # sequences that the partition has
        self.created_ms: dict[str, int] = {}

    # ------------------------------------------------------------ what clients do

    @rule(
        name=_NAMES,
        every_ms=st.integers(1_000, 5_000),
        start=st.none() | st.integers(-8_000, 8_000),
        length=st.none() | st.tuples(st.integers(1, 6), st.sampled_from([0, 1, 700])),
        fires_max=st.none() | st.integers(1, 4),
    )
    def create(
        self,
        name: str,
        every_ms: int,
        start: int | None,
        length: tuple[int, int] | None,
        fires_max: int | None,
    ) -> None:
        if name in self.lives:
            return
        start_ms = None if start is None else self.now_ms + start
        end_ms = None if length is None else (start_ms or self.now_ms) + length[0] * every_ms + length[1]
        recurrence = Recurrence(EveryRule(every_ms), start_ms, end_ms, fires_max)
        life = Life(recurrence, every_ms, grid_ms(recurrence, self.now_ms))
        due_ms = first_ms(recurrence, EveryTimes(every_ms, life.grid_ms), self.now_ms)
        least_ms = self.now_ms if start_ms is None else max(self.now_ms, start_ms - 1)
        points = life.points(least_ms, least_ms + every_ms)
        assert due_ms == (points[0] if points else None)
        if due_ms is not None:
            self.lives[name] = life
            self.created_ms[name] = self.now_ms
            one = Recurring(name, recurrence, self.now_ms, b"hash", due_ms)
            self.place([one], [])

    @rule(name=_NAMES)
    def delete(self, name: str) -> None:
        one = self.schedule.recurring.get(name)
        assert (one is None) == (name not in self.lives)
        if one is not None:
            is_pending = self.schedule.states.get(one.next_id) is State.PENDING
            self.write([RecurringRemoved(name), *([Removed(one.next_id)] if is_pending else [])])
            del self.lives[name]

    @rule(name=_NAMES)
    def skip(self, name: str) -> None:
        one = self.schedule.recurring.get(name)
        if one is None or not self.schedule.states.is_pending(one.next_id):
            return
        life, due_ms = self.records[one.next_id]
        life.skipped.append(due_ms)
        self.place([after_skipping(one, self.times(one))], [self.schedule.cancel(one.next_id)])

    # ------------------------------------------------------------ what time and the shell do

    @rule(pass_ms=st.one_of(st.integers(0, 3_000), st.integers(0, 40_000), st.integers(-3_000, 0)))
    def tick(self, pass_ms: int) -> None:
        self.now_ms += pass_ms

    @rule(name=_NAMES, late_ms=st.just(0) | st.integers(0, 20_000), steps=st.integers(0, 3))
    def come_to_a_due_time(self, name: str, late_ms: int, steps: int) -> None:
        """And go as far as the process lives."""
        one = self.schedule.recurring.get(name)
        if one is not None and one.next_ms is not None:
            self.now_ms = max(self.now_ms, one.next_ms + 10 + late_ms)
            if steps >= 1:
                self.decide_to_fire(3)
            if steps >= 2:
                self.deliver()
            if steps == 3:
                self.finish()

    @rule(count_max=st.integers(1, 3))
    def decide_to_fire(self, count_max: int) -> None:
        if self.schedule.firing is not None:
            return
        while self.schedule.wheel.advance(self.now_ms):
            pass
        self.schedule.ripen(self.now_ms)
        sizes = {one.id: 1 for one in self.schedule.ripe}
        producer = self.schedule.producer() or Producer(1, 0, 0)
        firing = self.schedule.fire(sizes, bytes_max=count_max, producer=producer, now_ms=self.now_ms)
        if firing is not None:
            self.write([firing])

    @rule()
    def deliver(self) -> None:
        firing = self.schedule.firing
        if firing is None or firing.sequence in self.batches:
            return
        self.batches.add(firing.sequence)
        for id in firing.ids:
            life, due_ms = self.records[id]
            assert due_ms <= firing.now_ms <= max(self.now_ms, firing.now_ms)
            life.due.append(due_ms)
            life.fired_ms.append(firing.now_ms)

    @rule()
    def finish(self) -> None:
        firing = self.schedule.firing
        if firing is None or firing.sequence not in self.batches:
            return
        found = [one for id in firing.ids if (one := self.schedule.recurring.of(id)) is not None]
        after = [after_firing(one, self.times(one), firing.now_ms) for one in found]
        self.place(after, [*self.schedule.fired(firing)])

    @rule(is_compacted=st.booleans())
    def restart(self, is_compacted: bool) -> None:
        self.schedule = self.replayed(self.compacted() if is_compacted else self.log)
        assert self.schedule.drop_stranded() == []

    # ------------------------------------------------------------ what must hold

    @invariant()
    def a_schedule_is_where_its_deliveries_say(self) -> None:
        firing = self.schedule.firing
        for name, life in self.lives.items():
            one = self.schedule.recurring.get(name)
            assert one is not None
            is_told = firing is None or firing.sequence not in self.batches or one.next_id not in firing.ids
            fired_count = len(life.due) if is_told else len(life.due) - 1
            assert one.fired_count == fired_count
            assert one.missed_count == len(self.missed(life, fired_count))
            assert one.last_fired_ms == (life.fired_ms[fired_count - 1] if fired_count else None)

    @invariant()
    def no_due_time_comes_twice_or_is_off_the_grid(self) -> None:
        for life, _ in self.records.values():
            handled = sorted([*life.due, *life.skipped, *self.missed(life, len(life.due))])
            assert life.due == sorted(set(life.due))
            assert len(set(handled)) == len(handled)
            assert all((at_ms - life.grid_ms) % life.every_ms == 0 for at_ms in handled)
            assert all(life.recurrence.end_ms is None or at_ms < life.recurrence.end_ms for at_ms in handled)
            assert len(life.due) <= (life.recurrence.fires_max or len(life.due))

    @invariant()
    def one_that_is_not_finished_has_one_record_that_waits_and_nobody_else_has(self) -> None:
        table = self.schedule.recurring
        waiting = [id for id in self.records if self.schedule.states.get(id) in WAITING]
        firing = self.schedule.firing.ids if self.schedule.firing is not None else []
        assert sorted(one.next_id for one in table.all() if one.next_ms is not None) == sorted(
            id for id in waiting if table.of(id) is not None
        )
        assert all(table.of(id) is not None or id in firing for id in waiting)

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        for log in (self.log, self.compacted()):
            again = self.replayed(log)
            assert {one.name: one for one in again.recurring.all()} == {
                one.name: one for one in self.schedule.recurring.all()
            }
            assert again.firing == self.schedule.firing
            assert {id for id in self.records if again.states.is_pending(id)} == {
                id for id in self.records if self.schedule.states.is_pending(id)
            }

    # ------------------------------------------------------------ the log

    def missed(self, life: Life, fired_count: int) -> list[int]:
        """What each delivery stands for beside its own due time."""
        return [
            at_ms
            for due_ms, fired_ms in list(zip(life.due, life.fired_ms, strict=True))[:fired_count]
            for at_ms in life.points(due_ms, fired_ms)
        ]

    def times(self, one: Recurring) -> EveryTimes:
        assert isinstance(one.recurrence.rule, EveryRule)
        return EveryTimes(one.recurrence.rule.every_ms, grid_ms(one.recurrence, self.created_ms[one.name]))

    def place(self, planned: list[Recurring], events: list[Event]) -> None:
        """Records, and the events that must be true with them, in one batch."""
        going_on = [one for one in planned if one.next_ms is not None]
        ids = {one.name: len(self.log) + at for at, one in enumerate(going_on)}
        for one in going_on:
            self.records[ids[one.name]] = (self.lives[one.name], one.next_ms or 0)
        self.write(
            [
                *(Scheduled(ids[one.name], one.next_ms or 0, 2) for one in going_on),
                *events,
                *(structs.replace(one, next_id=ids.get(one.name, -1)) for one in planned),
            ]
        )

    def write(self, events: list[Event]) -> None:
        for event in events:
            self.log.append(event)
            self.schedule.apply(event, self.now_ms)

    def replayed(self, log: list[Event]) -> Schedule:
        schedule = Schedule()
        for event in log:
            if not isinstance(event, Scheduled):
                stored = encode(event)
                assert decode(stored.key, stored.value) == event
            schedule.apply(event, self.now_ms)
        return schedule

    def compacted(self) -> list[Event]:
        """Of each key the newest, without tombstones."""
        newest: dict[object, int] = {}
        for at, event in enumerate(self.log):
            match event:
                case Scheduled() | Removed():
                    newest[event.id] = at
                case Recurring() | RecurringRemoved():
                    newest[event.name] = at
                case Firing() | Fired():
                    newest["firing"] = at
        kept = [event for at, event in enumerate(self.log) if at in newest.values()]
        return [event for event in kept if not isinstance(event, Removed | RecurringRemoved)]


Recurrings.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRecurrings = Recurrings.TestCase


def test_a_schedule_the_record_of_which_is_lost_is_forgotten() -> None:
    schedule = Schedule()
    schedule.apply(Scheduled(0, START_MS, 2), START_MS)
    for name, id in (("kept", 0), ("lost", 1)):
        recurrence = Recurrence(EveryRule(1_000))
        schedule.apply(Recurring(name, recurrence, START_MS, b"", START_MS, id), START_MS)
    schedule.apply(
        Recurring("finished", Recurrence(EveryRule(1_000)), START_MS, b"", None, fired_count=2), START_MS
    )
    assert schedule.drop_stranded() == ["lost"]
    assert [one.name for one in schedule.recurring.all()] == ["kept", "finished"]
    assert schedule.give_up([0]) == [Removed(0), RecurringRemoved("kept")]
