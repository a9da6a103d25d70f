"""Writers that wait until what they have appended is on enough replicas."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from goqueue.model.errors import GoQueueError

_COUNT_MIN: Final = 64  # before those are looked for who wait no longer


class _Unsettled(NamedTuple):
    end: int
    gives_up: bool  # where nobody can say when it will be
    future: asyncio.Future[None]


class Settling:
    """Whoever waits until an offset is reached: up to where a log is on all of them, say."""

    def __init__(self) -> None:
        self._unsettled: list[_Unsettled] = []
        self._count_max = _COUNT_MIN

    @property
    def is_awaited(self) -> bool:
        return bool(self._unsettled)

    def add(self, end: int, *, gives_up: bool) -> asyncio.Future[None]:
        """Done when everything before `end` is committed."""
        if len(self._unsettled) >= self._count_max:
            self._unsettled = [one for one in self._unsettled if not one.future.done()]
            self._count_max = max(_COUNT_MIN, 2 * len(self._unsettled))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsettled.append(_Unsettled(end, gives_up, future))
        return future

    def reached(self, offset: int) -> None:
        """Everything before it is committed."""
        if not self._unsettled:
            return
        for one in self._unsettled:
            if one.end <= offset and not one.future.done():
                one.future.set_result(None)
        self._unsettled = [one for one in self._unsettled if one.end > offset and not one.future.done()]

    def fail(self, error: GoQueueError, *, only_impatient: bool = False) -> None:
        """Nobody here will ever know; or, for those who give up, not for now."""
        unsettled, self._unsettled = self._unsettled, []
        for one in unsettled:
            if only_impatient and not one.gives_up:
                self._unsettled.append(one)
            elif not one.future.done():
                one.future.set_exception(error)
