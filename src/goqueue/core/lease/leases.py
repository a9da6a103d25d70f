"""The leases of a window: what was given at once, until when, and to whom. One of which nothing is left is forgotten."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from goqueue.core.deadlines import Deadlines
from goqueue.core.lease.events import Run
from goqueue.model.errors import invariant

_RUN_COUNT_MIN: Final = 8  # so few are not worth a second look


class _Lease(Struct):
    runs: list[Run]  # some of it may have left
    members: tuple[str, ...]  # more than one only if several have prolonged what they hold together
    left_count: int


class Leases:
    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}  # by serial
        self._deadlines = Deadlines[int]()  # the same
        self._serials: dict[str, dict[int, None]] = {}  # by member, in order

    def next_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def due(self, now_ms: int, count_max: int) -> list[int]:
        return self._deadlines.due(now_ms, count_max)

    def of_member(self, member: str) -> list[int]:
        """Leases of which the member may have something."""
        return list(self._serials.get(member, ()))

    def runs(self, serial: int) -> list[Run]:
        return self._leases[serial].runs

    def begin(
        self, serial: int, deadline_ms: int, runs: list[Run], members: tuple[str, ...], count: int
    ) -> None:
        invariant(serial not in self._leases, f"lease {serial} exists already")
        if not count:
            return
        self._leases[serial] = _Lease(runs, members, count)
        self._deadlines.set(serial, deadline_ms)
        for member in members:
            self._serials.setdefault(member, {})[serial] = None

    def restore(self, serial: int, deadline_ms: int, offset: int, member: str) -> None:
        """One record of it; they come in ascending order."""
        lease = self._leases.get(serial)
        if lease is None:
            self.begin(serial, deadline_ms, [Run(offset, 1)], (member,), 1)
            return
        last = lease.runs[-1]
        if last.start + last.length == offset:
            lease.runs[-1] = Run(last.start, last.length + 1)
        else:
            lease.runs.append(Run(offset, 1))
        lease.left_count += 1
        if member not in lease.members:
            lease.members += (member,)
            self._serials.setdefault(member, {})[serial] = None

    def put_off(self, serial: int, at_ms: int) -> None:
        self._deadlines.set(serial, at_ms)

    def leave(self, serial: int, count: int) -> bool:
        """Whether its runs are many for the little that is left."""
        lease = self._leases[serial]
        lease.left_count -= count
        if not lease.left_count:
            self._forget(serial, lease)
            return False
        return len(lease.runs) > 2 * lease.left_count + _RUN_COUNT_MIN

    def replace_runs(self, serial: int, runs: list[Run]) -> None:
        self._leases[serial].runs = runs

    def _forget(self, serial: int, lease: _Lease) -> None:
        del self._leases[serial]
        self._deadlines.cancel(serial)
        for member in lease.members:
            serials = self._serials[member]
            del serials[serial]
            if not serials:
                del self._serials[member]
