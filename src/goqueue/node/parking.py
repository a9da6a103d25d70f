"""Readers that wait for a partition to get further."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Parked(NamedTuple):
    future: asyncio.Future[None]
    offset: int
    committed: bool


class ParkedReaders:
    def __init__(self) -> None:
        self._parked: list[Parked] = []

    def __bool__(self) -> bool:
        return bool(self._parked)

    def add(self, future: asyncio.Future[None], offset: int, *, committed: bool) -> Parked:
        parked = Parked(future, offset, committed)
        self._parked.append(parked)
        return parked

    def remove(self, parked: Parked) -> None:
        if parked in self._parked:
            self._parked.remove(parked)

    def wake_reached(self, watermark: int, stable: int) -> None:
        """Let those go on whose offset may be read now; an open transaction keeps the others waiting."""
        reached = [one for one in self._parked if (stable if one.committed else watermark) > one.offset]
        if reached:
            self._parked = [
                one for one in self._parked if (stable if one.committed else watermark) <= one.offset
            ]
            _release(reached)

    def wake(self) -> None:
        """All of them: let every one look again."""
        parked, self._parked = self._parked, []
        _release(parked)


def _release(parked: list[Parked]) -> None:
    for one in parked:
        if not one.future.done():
            one.future.set_result(None)
