"""When members must have been heard of. Volatile: after a restart everybody gets the full time again."""

from __future__ import annotations


class Deadlines:
    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._next_ms: int | None = None  # at or before the earliest; None = to be found

    def set(self, member_id: str, deadline_ms: int) -> None:
        self._deadlines[member_id] = deadline_ms
        if self._next_ms is not None:
            self._next_ms = min(self._next_ms, deadline_ms)

    def drop(self, member_id: str) -> None:
        if self._deadlines.pop(member_id, None) == self._next_ms:
            self._next_ms = None

    def clear(self) -> None:
        self._deadlines.clear()
        self._next_ms = None

    def due(self, now_ms: int) -> list[str]:
        """Sorted by member. They stay due until they are dropped or set anew."""
        self._next_ms = None
        return sorted(member_id for member_id, at_ms in self._deadlines.items() if at_ms <= now_ms)

    def next_ms(self) -> int | None:
        """May be too early, never too late: a heartbeat puts a deadline off, and looking at all of them each time
        would cost more than a look for nothing now and then."""
        if self._next_ms is None:
            self._next_ms = min(self._deadlines.values(), default=None)
        return self._next_ms
