"""The state of all queue groups on one partition, as its log tells it. `goqueue.core.lease.decisions` decides, `apply`
alone changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from goqueue.core.lanes import Lanes
from goqueue.core.lease.damage import Damage, Met, mended
from goqueue.core.lease.events import (
    REDRIVE,
    Change,
    Closed,
    EntriesSaved,
    Event,
    Extended,
    Leased,
    Moved,
    MoveSaved,
    Moving,
    Opened,
    Postponed,
    ProducerNamed,
    RedrivenSaved,
    Settled,
    SnapshotBegan,
    SnapshotEnded,
    SnapshotPart,
    Sought,
    Target,
    Trimmed,
    WindowSaved,
    Withdrawn,
    offsets_of,
)
from goqueue.core.lease.spans import Spans
from goqueue.core.lease.window import Entry, Window
from goqueue.core.producer import next_sequence
from goqueue.model.errors import InvariantViolation

_OF_GROUPS = (Leased, Settled, Postponed, Extended, Moving, Sought, Trimmed, Closed)
_ENTRIES_PER_EVENT: Final = 10_000


class Ledger:
    def __init__(self) -> None:
        self._forget_everything()
        self.lanes: dict[int, Lanes] = {}  # by group; not in the log
        self._restoring: Ledger | None = None  # a snapshot of which the end has not come yet
        self.damage: Damage | None = None  # while there is a hole that nothing has made good

    def _forget_everything(self) -> None:
        self.windows: dict[int, Window] = {}  # by number
        self.numbers: dict[str, int] = {}  # by group
        self.moves: dict[int, Moving] = {}  # decided and not known to be done, by serial
        self.sequences: dict[Target, int] = {}  # the next of what is moved there
        self.redriven = Spans()  # records that were sent back to where they came from
        self.producer: tuple[int, int] | None = None  # id and epoch
        self.serial = 0  # the last that was given
        self.group_number = 0  # the same

    # ---------------------------------------------------------------- looking

    def find(self, group_id: str) -> Window | None:
        number = self.numbers.get(group_id)
        return None if number is None else self.windows[number]

    def next_tick_ms(self) -> int | None:
        times = [at for window in self.windows.values() if (at := window.next_deadline_ms()) is not None]
        return min(times, default=None)

    def lanes_of(self, window: Window) -> Lanes:
        lanes = self.lanes.get(window.number)
        if lanes is None:
            lanes = self.lanes[window.number] = Lanes()
        return lanes

    # ---------------------------------------------------------------- applying

    def apply(self, event: Event) -> None:
        match event:
            case SnapshotBegan():
                self._restoring = Ledger()
                self._restoring._begin(event)
            case WindowSaved() | EntriesSaved() | RedrivenSaved() | MoveSaved():
                if self._restoring is not None:
                    self._restoring._restore(event)
            case SnapshotEnded():
                if self._restoring is not None:
                    self._adopt(self._restoring)
            case _:
                self._restoring = None  # a crash has torn the snapshot: what was before it counts
                if self.damage is None:
                    self._apply(event)
                else:
                    self._apply_behind(self.damage, event)

    def interrupt(self, lost_count: int) -> None:
        """Up to so many events are missing here. What comes behind them counts as far as it can; `mend` ends it, or a
        snapshot, which begins the state anew."""
        self._restoring = None
        if self.damage is None:
            self.damage = Damage()
        self.damage.begin(self.windows, lost_count)

    def mend(
        self, damage: Damage, found: Sequence[Met] | None, sequences: Mapping[Target, int], now_ms: int
    ) -> int:
        """How many records come again. `found` are those of the partition that stand where the damage leaves doubt; None
        if they are too many, then groups are sent back to before it. `sequences` are the next that targets expect: of
        what was moved in the hole they know. Not an event: the snapshot that must follow says all of it."""
        count = 0
        self.serial += damage.lost_count  # each of them may have given one of either
        self.group_number += damage.lost_count
        for number, doubt in damage.doubts():
            window = self.windows[number]
            if found is None:
                window.apply_sought(min(window.committed_offset, *(span.start for span in doubt.spans)))
                continue
            for event in mended(window, doubt, found, self.serial + 1, now_ms):
                count += len(event.seen) + len(event.held)
                self._apply(event)
        for window in self.windows.values():
            window.free_keys()
        self.sequences.update(sequences)
        self.damage = None
        return count

    def cut(self, end: int) -> bool:
        """The partition has lost what stood from `end` on. Whether anything is known of that; then a snapshot must follow."""
        is_known = [window.cut(end) for window in self.windows.values()]
        return any([*is_known, self.redriven.forget_from(end)])

    def _apply_behind(self, damage: Damage, event: Change) -> None:
        if isinstance(event, _OF_GROUPS):
            self.group_number = max(self.group_number, event.group)
        elif isinstance(event, Opened) and event.group_id in self.numbers:
            self._apply(Closed(self.numbers[event.group_id]))  # that was lost
        adapted = damage.adapt(event, self.windows, self.moves)
        if adapted is not None:
            self._apply(adapted)

    def _apply(self, event: Change) -> None:
        if isinstance(event, _OF_GROUPS) and self._is_closed(event.group):
            return  # decided before the group was deleted, and written after
        match event:
            case Opened():
                self.windows[event.group] = Window(event.group, event.group_id, event.start)
                self.numbers[event.group_id] = event.group
                self.group_number = max(self.group_number, event.group)
            case Leased():
                self._note(event.serial)
                self._window(event.group).apply_leased(event)
            case Settled():
                self._window(event.group).apply_settled(offsets_of(event.runs), event.cursors)
            case Postponed():
                self._window(event.group).apply_postponed(event)
            case Extended():
                self._note(event.serial)
                self._window(event.group).apply_extended(event)
            case Moving():
                self._apply_moving(event)
            case Moved():
                self.moves.pop(event.serial, None)
            case Withdrawn():
                for letter in self.moves.pop(event.serial).letters:
                    self.redriven.discard(letter.offset)
            case ProducerNamed():
                # Sequences go on: moves that are open have theirs, and a partition takes any from a new producer.
                self.producer = (event.producer_id, event.epoch)
            case Sought():
                self._window(event.group).apply_sought(event.start)
            case Trimmed(group=group) if group == REDRIVE:
                self.redriven.forget_before(event.start)
            case Trimmed():
                self._window(event.group).apply_trimmed(event.start)
            case Closed():
                window = self.windows.pop(event.group)
                del self.numbers[window.group_id]
                self.lanes.pop(event.group, None)
            case _:
                assert_never(event)

    def _apply_moving(self, event: Moving) -> None:
        self._note(event.serial)
        offsets = [letter.offset for letter in event.letters]
        if event.group == REDRIVE:
            for offset in offsets:
                self.redriven.add(offset)
        else:
            self._window(event.group).apply_moving(offsets)
        self.moves[event.serial] = event
        self.sequences[event.target] = next_sequence(event.sequence, len(offsets))

    def _is_closed(self, number: int) -> bool:
        return number != REDRIVE and number <= self.group_number and number not in self.windows

    def _window(self, number: int) -> Window:
        window = self.windows.get(number)
        if window is None:
            raise InvariantViolation(f"an event of group {number}, which was never opened")
        return window

    def _note(self, serial: int) -> None:
        self.serial = max(self.serial, serial)

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> Iterator[SnapshotPart]:
        """Everything, as events that begin a log."""
        producer_id, epoch = self.producer or (-1, -1)
        yield SnapshotBegan(
            self.serial, self.group_number, producer_id, epoch, sorted(self.sequences.items())
        )
        for number, window in sorted(self.windows.items()):
            yield WindowSaved(
                number,
                window.group_id,
                window.incarnation,
                window.cursors,
                window.settled_count,
                window.moved_count,
            )
            rows = [_row(offset, entry) for offset, entry in sorted(window.entries.items())]
            for at in range(0, len(rows), _ENTRIES_PER_EVENT):
                yield EntriesSaved(number, rows[at : at + _ENTRIES_PER_EVENT])
        runs = self.redriven.runs()
        for at in range(0, len(runs), _ENTRIES_PER_EVENT):
            yield RedrivenSaved(runs[at : at + _ENTRIES_PER_EVENT])
        for _, move in sorted(self.moves.items()):
            yield MoveSaved(move)
        yield SnapshotEnded()

    def _begin(self, event: SnapshotBegan) -> None:
        self.serial = event.serial
        self.group_number = event.group_number
        self.sequences = dict(event.sequences)
        self.producer = None if event.producer_id < 0 else (event.producer_id, event.producer_epoch)

    def _restore(self, event: WindowSaved | EntriesSaved | RedrivenSaved | MoveSaved) -> None:
        match event:
            case WindowSaved():
                window = Window(event.group, event.group_id, 0)
                window.incarnation = event.incarnation
                window.cursors = event.cursors
                window.settled_count = event.settled_count
                window.moved_count = event.moved_count
                self.windows[event.group] = window
                self.numbers[event.group_id] = event.group
            case EntriesSaved():
                for row in event.entries:
                    self.windows[event.group].restore(*_entry(row))
            case RedrivenSaved():
                for run in event.runs:
                    self.redriven.add(*run)
            case MoveSaved():
                self.moves[event.move.serial] = event.move

    def _adopt(self, restored: Ledger) -> None:
        for window in restored.windows.values():
            window.restored()
        self.windows, self.numbers = restored.windows, restored.numbers
        self.moves, self.sequences = restored.moves, restored.sequences
        self.redriven = restored.redriven
        self.producer, self.serial = restored.producer, restored.serial
        self.group_number = restored.group_number
        self._restoring = None
        self.damage = None


_Row = tuple[int, int, int, int, int, int, str, int, int, int, str]
_WAITING, _LEASED, _HELD = range(3)


def _row(offset: int, entry: Entry) -> _Row:
    state = _LEASED if entry.is_leased else _HELD if entry.is_held else _WAITING
    return (
        offset,
        entry.lane,
        entry.deliveries,
        state,
        entry.until_ms,
        entry.serial,
        entry.member,
        entry.first_ms,
        entry.last_ms,
        entry.key,
        entry.reason,
    )


def _entry(row: _Row) -> tuple[int, Entry]:
    offset, lane, deliveries, state, until_ms, serial, member, first_ms, last_ms, key, reason = row
    is_leased, is_held = state == _LEASED, state == _HELD
    return offset, Entry(
        lane, key, deliveries, is_leased, is_held, until_ms, serial, member, first_ms, last_ms, reason
    )
