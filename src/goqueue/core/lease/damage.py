"""What a ledger makes of a hole in its log, where a damaged batch was.

What lies behind the hole is true, but builds on what is missing: it finishes records that nobody has met, and its cursors
pass by records that nobody knows to be leased. Those come again, or they would be lost; nothing else does. A hole is as wide
as the cursors of the events before and behind it say, lane by lane. Which records stand in it only the partition's own
log knows, so whoever replays a ledger asks for `doubts`, looks them up, and ends with `mend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from goqueue.core.lease.events import (
    REDRIVE,
    Change,
    Closed,
    Extended,
    Leased,
    Moved,
    Moving,
    Opened,
    Postponed,
    ProducerNamed,
    Run,
    Seen,
    Settled,
    Sought,
    Trimmed,
    Withdrawn,
    offsets_of,
    runs_of,
)
from goqueue.core.lease.spans import Spans
from goqueue.core.lease.window import NO_KEY, Window

_RECORDS_PER_LEASE: Final = 1_000  # leases end as a whole, one or some at a time


class Span(NamedTuple):
    """Offsets [start, end), of which those of one lane may have been leased."""

    lane: int
    start: int
    end: int


class Met(NamedTuple):
    """A record of the partition."""

    offset: int
    lane: int
    key: int


class Doubt:
    """Of one group."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._cursors: tuple[int, ...] | None = None  # before a hole of which the other side has not come yet
        self._told = Spans()  # what events behind a hole speak of

    def begin(self, cursors: tuple[int, ...]) -> None:
        self._cursors = self._cursors or cursors

    def tell(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._told.add(*run)

    def end(self, window: Window, cursors: tuple[int, ...], lost_count: int) -> None:
        """An event behind the hole says how far the lanes have come."""
        before, self._cursors = self._cursors, None
        if before is None:
            return
        if any(after < at for at, after in zip(before, cursors, strict=True)):
            # Only a seek goes back. Had it alone been lost, all that came after it is here; else nobody knows where it
            # began.
            window.apply_sought(min(cursors))
            self.spans, self._told = [], Spans()
            before = cursors if lost_count == 1 else (0,) * len(cursors)
        self.spans += [
            Span(lane, at, after)
            for lane, (at, after) in enumerate(zip(before, cursors, strict=True))
            if at < after
        ]

    def covers(self, met: Met) -> bool:
        return met.offset not in self._told and any(
            span.lane == met.lane and span.start <= met.offset < span.end for span in self.spans
        )


class Damage:
    """Since the first hole that no snapshot has made good."""

    def __init__(self) -> None:
        self.lost_count = 0  # events, at the most
        self._doubts: dict[int, Doubt] = {}  # by group

    def begin(self, windows: Mapping[int, Window], lost_count: int) -> None:
        self.lost_count += lost_count
        for number, window in windows.items():
            self._doubts.setdefault(number, Doubt()).begin(window.cursors)

    def doubts(self) -> list[tuple[int, Doubt]]:
        return sorted((number, doubt) for number, doubt in self._doubts.items() if doubt.spans)

    # ---------------------------------------------------------------- behind the hole

    def adapt(
        self, event: Change, windows: Mapping[int, Window], moves: Mapping[int, Moving]
    ) -> Change | None:
        """An event so that it can be applied to what is there. None where there is nothing that it could change."""
        match event:
            case Withdrawn():
                return event if event.serial in moves else None
            case Opened() | Moved() | ProducerNamed() | Trimmed():
                return event
            case Closed() | Sought():
                self._doubts.pop(event.group, None)
                return event
            case Moving() if event.group == REDRIVE:
                return event
            case Leased() | Settled() | Postponed() | Extended() | Moving():
                window = windows.get(event.group)
                return None if window is None else self._adapt(event, window)
            case _:
                assert_never(event)

    def _adapt(
        self, event: Leased | Settled | Postponed | Extended | Moving, window: Window
    ) -> Change | None:
        doubt = self._doubts.get(window.number) or Doubt()  # a group that was opened behind the hole has none
        match event:
            case Leased():
                doubt.end(window, event.cursors, self.lost_count)
                doubt.tell(Run(one.start, one.length) for one in event.seen)
                doubt.tell(Run(offset, 1) for offset, _, _ in event.held)
                for one in event.seen:
                    for offset in range(one.start, one.start + one.length):
                        window.free(offset)
                for offset, _, _ in event.held:
                    window.drop(offset)
                return event
            case Settled():
                if event.cursors:
                    doubt.end(window, event.cursors, self.lost_count)
                doubt.tell(event.runs)
                _meet(window, offsets_of(event.runs))
                return event
            case Moving():
                doubt.tell(Run(letter.offset, 1) for letter in event.letters)
                _meet(window, (letter.offset for letter in event.letters))
                return event
            case Postponed():
                items = [(offset, until_ms) for offset, until_ms in event.items if offset in window.entries]
                for offset, _ in items:
                    window.free(offset)
                return Postponed(event.group, items, event.is_expired, event.reason)
            case Extended():
                leased = [offset for offset in offsets_of(event.runs) if window.is_leased(offset)]
                return Extended(event.group, event.serial, event.deadline_ms, runs_of(leased))


def mended(window: Window, doubt: Doubt, found: Iterable[Met], serial: int, now_ms: int) -> list[Leased]:
    """What may have been leased in the hole counts as leased once, by nobody knows whom, until now: so it comes back as
    after any lease. Where a record before it has its key, it waits for that one."""
    given: list[Met] = []
    held: list[tuple[int, int, int]] = []
    busy: set[int] = set()
    for met in found:
        if not doubt.covers(met) or met.offset in window.entries:
            continue
        if met.key != NO_KEY and (met.key in busy or window.is_busy(met.key)):
            held.append(met)
            continue
        busy.add(met.key)
        given.append(met)
    parts = [given[at : at + _RECORDS_PER_LEASE] for at in range(0, len(given), _RECORDS_PER_LEASE)]
    return [
        Leased(
            window.number,
            serial + index,
            "",
            now_ms,
            now_ms,
            [Seen(met.offset, 1, met.lane, 1) for met in part],
            window.cursors,
            [met.key for met in part],
            [] if index else held,
        )
        for index, part in enumerate(parts or [[]])
    ]


def spanned(doubts: Sequence[tuple[int, Doubt]]) -> tuple[int, int]:
    """From where to where the partition is to be looked at."""
    spans = [span for _, doubt in doubts for span in doubt.spans]
    return min(span.start for span in spans), max(span.end for span in spans)


def _meet(window: Window, offsets: Iterator[int]) -> None:
    """They were leased in the hole; what follows takes them away again."""
    for offset in offsets:
        if offset not in window.entries:
            window.meet(offset)
