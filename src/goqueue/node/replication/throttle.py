"""How fast this node copies partitions that are being moved to it. Replicas that are in sync are never slowed down: clients wait
for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 0.25  # so long, at most, nobody looks whether there is more to spend
_BYTES_MIN: Final = 16 * 1024  # of one fetch; a batch is fetched whole in any case
_FETCHES_PER_S: Final = 4
_BURST_S: Final = 0.5  # what was not used for so long may be used at once

LimitOf = Callable[
    [str, int], int | None
]  # bytes per second; None: no limit, or not one that is being moved here


class MoveThrottle:
    """One bucket for all of them. What a fetch brings is known afterwards, so it is a debt, and while that is large nothing more is
    fetched. A small one delays nothing: by its next fetch a replica says how far it is, and one that says so late never
    catches up with a partition that is written to."""

    def __init__(self, limit_of: LimitOf) -> None:
        self._limit_of = limit_of
        self._debt_bytes = 0.0
        self._at = 0.0

    def until(self, topic: str, index: int, now: float) -> float:
        """When to ask for more of it."""
        limit = self._limit_of(topic, index)
        if limit is None:
            return now
        if limit == 0:
            return now + _LOOK_S
        self._pay(limit, now)
        too_much = self._debt_bytes - limit * _BURST_S
        return now + min(max(too_much / limit, 0.0), _LOOK_S)

    def bytes_max(self, topic: str, index: int, usual: int) -> int:
        """Of one fetch of it."""
        limit = self._limit_of(topic, index)
        return usual if limit is None else min(usual, max(_BYTES_MIN, limit // _FETCHES_PER_S))

    def took(self, topic: str, index: int, count: int, now: float) -> None:
        limit = self._limit_of(topic, index)
        if limit is not None:
            self._pay(limit, now)
            self._debt_bytes += count

    def _pay(self, limit: int, now: float) -> None:
        self._debt_bytes = max(0.0, self._debt_bytes - limit * (now - self._at))
        self._at = now
