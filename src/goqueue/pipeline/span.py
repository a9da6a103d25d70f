"""What is read: half-open stretches of partitions, and the bytes that they come as.

A span crosses from the driver to an executor, so it is small and plain. Two transports give its bytes, from the leaders
over the network or from segment files; everything after that is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Span(NamedTuple):
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


class Aborted(NamedTuple):
    """A producer's transaction that was aborted: its batches from the first offset to its marker do not count."""

    producer_id: int
    first_offset: int


class Chunk(NamedTuple):
    """Whole batches in the order of their offsets, and the aborted transactions that may have records among them. Good until
    the next one is asked for: their memory may be used again."""

    data: bytes | memoryview
    aborted: tuple[Aborted, ...] = ()
    is_checked: bool = False  # the checksums are known to be right


class Transport(Protocol):
    """Where topics are read. Made anew wherever it is needed: it never crosses to another process."""

    def topics(self) -> dict[str, int]:
        """Names to partition counts, without the broker's own."""

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]: ...

    def latest(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        """The high watermark, or the last stable offset for committed readers; never the end of the log."""

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
        """The first offset whose record is at least that new; None where there is none."""

    def read(self, span: Span, *, committed: bool) -> Iterator[Chunk]:
        """Every batch that has offsets of the span; perhaps some before and behind it. `DataLoss` where records of the
        span are gone."""

    def close(self) -> None: ...
