"""What became of each id: one byte, in small pages, so that millions cost megabytes.

Ids are offsets, so they only grow. A page on which nothing waits any more is kept for a while, so that who asks late hears
that a record was fired or cancelled, and then forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

PAGE_IDS = 1024
_FINISHED_PAGES_MAX = 4096  # four million ids
_STATE_MASK = 0x0F
_LANE_SHIFT = 4


class State(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    FIRING = 2
    FIRED = 3
    CANCELLED = 4


WAITING = (State.PENDING, State.FIRING)


class States:
    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._waiting: dict[int, int] = {}  # page to how many of its ids wait; pages without are not here
        self._finished: dict[int, None] = {}  # pages without, in the order in which they became so
        self.pending_count = 0

    def get(self, id: int) -> State:
        page = self._pages.get(id // PAGE_IDS)
        return State.UNKNOWN if page is None else State(page[id % PAGE_IDS] & _STATE_MASK)

    def lane(self, id: int) -> int:
        page = self._pages.get(id // PAGE_IDS)
        return 0 if page is None else page[id % PAGE_IDS] >> _LANE_SHIFT

    def is_pending(self, id: int) -> bool:
        page = self._pages.get(id // PAGE_IDS)
        return page is not None and page[id % PAGE_IDS] & _STATE_MASK == 1

    def add(self, id: int, lane: int) -> None:
        number = id // PAGE_IDS
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE_IDS)
        page[id % PAGE_IDS] = lane << _LANE_SHIFT | 1
        self._waiting[number] = self._waiting.get(number, 0) + 1
        self._finished.pop(number, None)
        self.pending_count += 1

    def set(self, id: int, state: State) -> None:
        """Of an id that is known."""
        number = id // PAGE_IDS
        page, at = self._pages[number], id % PAGE_IDS
        before = page[at] & _STATE_MASK
        page[at] = page[at] & ~_STATE_MASK | state
        self.pending_count += (state is State.PENDING) - (before == State.PENDING)
        if before in WAITING and state not in WAITING:
            self._leave(number)

    def _leave(self, number: int) -> None:
        left = self._waiting[number] - 1
        if left:
            self._waiting[number] = left
            return
        del self._waiting[number]
        self._finished[number] = None
        if len(self._finished) > _FINISHED_PAGES_MAX:
            oldest = next(iter(self._finished))
            del self._finished[oldest], self._pages[oldest]

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Those on which something waits, then the finished ones in the order in which they became so."""
        for number in (*sorted(self._waiting), *self._finished):
            yield number, bytes(self._pages[number])

    def restore(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """Into an empty one, in the order of `pages`."""
        for number, content in pages:
            self._pages[number] = bytearray(content)
            states = content.translate(_STATES)
            pending, firing = states.count(State.PENDING), states.count(State.FIRING)
            self.pending_count += pending
            if pending + firing:
                self._waiting[number] = pending + firing
            else:
                self._finished[number] = None


_STATES = bytes(byte & _STATE_MASK for byte in range(256))
