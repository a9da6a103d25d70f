"""What every queue is asked, whatever its protocol: one publisher and one taker per connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.line import require

_STAMP_BYTES = 12


@dataclass(frozen=True, slots=True)
class Taken:
    values: list[bytes]
    ack: Callable[
        [], Awaitable[None]
    ]  # of all of them; returns when the server has said so, where its protocol can


class Publisher(Protocol):
    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        """Returns when the server has confirmed all of them."""

    async def close(self) -> None: ...


class Taker(Protocol):
    async def take(self, count_max: int, wait_s: float) -> Taken:
        """So many, or what there is after that time; at once if the protocol does not wait for more."""

    async def close(self) -> None: ...


class QueueClient(Protocol):
    async def create(self) -> None: ...

    async def publisher(self) -> Publisher: ...

    async def taker(self) -> Taker: ...

    async def unsettled_count(self) -> int:
        """Of messages that the server would still give to somebody. Asked when all takers are closed."""

    async def delete(self) -> None: ...


class Tally:
    """Every message once, whole, in any order."""

    def __init__(self, count: int, filler: bytes) -> None:
        self._is_seen = bytearray(count)
        self._filler = filler
        self.seen_count = 0

    def add(self, value: bytes) -> int:
        """Enter a message; its index."""
        stamp = value[:_STAMP_BYTES]
        require(stamp.isdigit(), f"a value begins with {stamp!r}")
        index = int(stamp)
        require(index < len(self._is_seen), f"message {index} was taken and never sent")
        require(value[_STAMP_BYTES:] == self._filler, f"message {index} has other bytes than were sent")
        require(not self._is_seen[index], f"message {index} was given twice")
        self._is_seen[index] = 1
        self.seen_count += 1
        return index

    @property
    def is_complete(self) -> bool:
        return self.seen_count == len(self._is_seen)
