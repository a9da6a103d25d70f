"""The delayed records of one partition.

`apply` alone changes what is pending, firing and taken, and is also recovery. Beside that there is what only this life
knows: the wheel turns, and what it gave waits in `ripe` until its firing is decided.

Firing is in three steps, of which each is durable before the next: `Firing` says which records, the records are put into
the partition under the name of an idempotent producer, `Fired` and tombstones say that they are. A crash in between repeats
the second step, which the partition recognises. One firing at a time, so there is one sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import assert_never

from goqueue.core.producer import BATCH_COUNT_KEPT, last_sequence
from goqueue.core.schedule.events import Change, Event, Fired, Firing, Removed, Scheduled, Taken, TakenBatch
from goqueue.core.schedule.recurring import Recurring, RecurringRemoved, RecurringTable
from goqueue.core.schedule.states import WAITING, State, States
from goqueue.core.schedule.wheel import TICK_MS, Due, Wheel, tick_of
from goqueue.model.errors import LimitExceeded, ScheduleFired, ScheduleNotFound
from goqueue.model.record import Producer

PENDING_COUNT_MAX = 50_000_000
TAKEN_PRODUCERS_MAX = 10_000
RIPE_COUNT_MAX = 1_000


class Schedule:
    def __init__(self) -> None:
        self.wheel = Wheel()
        self.states = States()
        self.ripe: deque[Due] = deque()
        self.firing: Firing | None = None
        self.last_fired: Fired | None = None
        self.taken: dict[int, Taken] = {}  # by producer, in the order of last use
        self.recurring = RecurringTable()
        self.cancelled_count = 0  # that may still be in the wheel

    @property
    def waiting_count(self) -> int:
        """Records that are not known to be in the partition: pending, or in a firing that is under way."""
        return self.states.pending_count + (0 if self.firing is None else len(self.firing.ids))

    # ---------------------------------------------------------------- deciding

    def admit(self, count: int) -> None:
        pending_count = self.states.pending_count
        if pending_count + count > PENDING_COUNT_MAX:
            raise LimitExceeded(
                f"{pending_count} delayed messages wait in this partition and {count} come; {PENDING_COUNT_MAX} may",
                pending_count=pending_count,
            )

    def cancel(self, id: int) -> Removed:
        match self.states.get(id):
            case State.PENDING:
                return Removed(id)
            case State.FIRING | State.FIRED:
                raise ScheduleFired(f"delayed message {id} has been delivered already", offset=id)
            case State.CANCELLED:
                raise ScheduleNotFound(f"delayed message {id} has been cancelled already", offset=id)
            case State.UNKNOWN:
                raise ScheduleNotFound(f"there is no delayed message {id}, or it is long gone", offset=id)

    def find_taken(self, producer: Producer, record_count: int) -> TakenBatch | None:
        """What was taken from this very batch when it came before."""
        entry = self.taken.get(producer.id)
        if entry is None or entry.epoch != producer.epoch:
            return None
        last = last_sequence(producer.sequence, record_count)
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (producer.sequence, last):
                return batch
        return None

    def take_from(
        self, producer: Producer, record_count: int, *, first_id: int, positions: Sequence[int]
    ) -> list[Taken]:
        """Remember a producer's batch; where there are too many producers, the one that was idle longest is forgotten."""
        entry = self.taken.get(producer.id)
        before = entry.batches if entry is not None and entry.epoch == producer.epoch else []
        last = last_sequence(producer.sequence, record_count)
        batch = TakenBatch(producer.sequence, last, first_id, list(positions))
        events = [Taken(producer.id, producer.epoch, [*before[1 - BATCH_COUNT_KEPT :], batch])]
        if entry is None and len(self.taken) >= TAKEN_PRODUCERS_MAX:
            events.append(Taken(next(iter(self.taken)), -1, []))
        return events

    def ripen(self, now_ms: int) -> None:
        """Take from the wheel what is due, as much as is handled at once. Call it when the wheel has nothing to move."""
        is_pending = self.states.is_pending
        self.ripe = deque(one for one in self.ripe if is_pending(one.id))
        taken = self.wheel.take(now_ms, RIPE_COUNT_MAX - len(self.ripe))
        self.ripe.extend(one for one in taken if is_pending(one.id))

    def fire(
        self, sizes: Mapping[int, int], *, bytes_max: int, producer: Producer, now_ms: int
    ) -> Firing | None:
        """The next batch: of what is ripe, from the first on, as much as fits; `sizes` has those that can be read."""
        ids: dict[int, None] = {}
        total = 0
        for due_ms, id in self.ripe:
            if id in ids or not self.states.is_pending(id):
                continue
            size = sizes.get(id)
            if size is None or due_ms > now_ms or (ids and total + size > bytes_max):
                break
            ids[id] = None
            total += size
        if not ids:
            return None
        return Firing(list(ids), now_ms, producer.id, producer.epoch, producer.sequence)

    def producer(self) -> Producer | None:
        """Under which name the next batch goes, while none is under way; None before the first."""
        last = self.last_fired
        return None if last is None else Producer(last.producer_id, last.epoch, last.sequence)

    def fired(self, firing: Firing) -> list[Removed | Fired]:
        """What is true once the batch of a firing is durable."""
        sequence = last_sequence(firing.sequence, len(firing.ids) + 1)
        return [*map(Removed, firing.ids), Fired(firing.producer_id, firing.epoch, sequence)]

    def give_up(self, ids: Sequence[int]) -> list[Change]:
        """What is true of records that cannot be read any more. With its firing a recurring schedule loses its message."""
        names = [one.name for id in ids if (one := self.recurring.of(id)) is not None]
        return [*map(Removed, ids), *map(RecurringRemoved, names)]

    def drop_stranded(self) -> list[str]:
        """Forget recurring schedules the firing of which a damaged log has lost; their names. Once, after a replay: the next
        one comes to the same."""
        names = [
            one.name
            for one in self.recurring.all()
            if one.next_ms is not None and self.states.get(one.next_id) not in WAITING
        ]
        for name in names:
            self.recurring.apply(RecurringRemoved(name))
        return names

    def next_ms(self) -> int | None:
        """When there is something to do."""
        if self.firing is not None:
            return 0
        self._drop_stale()
        first = tick_of(self.ripe[0].due_ms) * TICK_MS if self.ripe else None
        turns = self.wheel.next_ms()
        return min((at_ms for at_ms in (first, turns) if at_ms is not None), default=None)

    def _drop_stale(self) -> None:
        while self.ripe and not self.states.is_pending(self.ripe[0].id):
            self.ripe.popleft()

    # ---------------------------------------------------------------- applying

    def apply(self, event: Event, now_ms: int) -> None:
        """The time only decides where in the wheel a record stands, not what becomes of it."""
        match event:
            case Scheduled(id, due_ms, lane):
                self.states.add(id, lane)
                self.wheel.add(due_ms, id, now_ms)
            case Removed(id):
                self._remove(id)
            case Firing():
                self._begin_firing(event)
            case Fired():
                self.firing = None
                self.last_fired = event
            case Taken():
                self.taken.pop(event.producer_id, None)
                if event.batches:
                    self.taken[event.producer_id] = event
            case Recurring() | RecurringRemoved():
                self.recurring.apply(event)
            case _:
                assert_never(event)

    def _remove(self, id: int) -> None:
        """Of one that compaction has taken already there is nothing to say."""
        state = self.states.get(id)
        if state is State.PENDING:
            self.states.set(id, State.CANCELLED)
            self.cancelled_count += 1
        elif state is State.FIRING:
            self.states.set(id, State.FIRED)

    def _begin_firing(self, event: Firing) -> None:
        if self.firing is not None:  # the same again, under another name or without what cannot be read
            for id in self.firing.ids:
                if self.states.get(id) is State.FIRING:
                    self.states.set(id, State.PENDING)
        self.firing, self.last_fired = event, None  # it says itself who sends it
        for id in event.ids:
            if self.states.is_pending(id):
                self.states.set(id, State.FIRING)
