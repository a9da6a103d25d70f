"""Which leader wrote which offsets: (epoch, first offset) pairs, rising in both.

A log that lost its unsynced tail may assign the same offset twice, but never under the same epoch, and the
history is on disk before the first batch of an epoch is. Followers and Kafka clients use it to find where
two histories part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from goqueue.model.errors import invariant

NO_EPOCH = -1
UNKNOWN_END = (NO_EPOCH, -1)


class LeaderEpochs:
    def __init__(self, entries: Iterable[tuple[int, int]] = (), latest: int = NO_EPOCH) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_EPOCH  # also of epochs that left no trace: a number is never used twice
        for epoch, start in entries:
            self.begin(epoch, start)
        self.latest = max(self.latest, latest)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def begin(self, epoch: int, start: int) -> None:
        """A new leader writes from `start` on. An epoch that wrote nothing leaves no trace."""
        invariant(epoch > self.latest, f"leader epoch {epoch} does not follow {self.latest}")
        self.truncate(start)
        self.latest = epoch
        self._epochs.append(epoch)
        self._starts.append(start)

    def at(self, offset: int) -> int | None:
        """The epoch under which an offset was written."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else None

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Up to where this log is the one that a reader of `epoch` knows, as Kafka answers it (KIP-320): the largest known
        epoch that is not above it, and where that ends. What an epoch below all known ones wrote is gone, so that whoever
        has read it goes on at the first; of an epoch that never was, nothing is known."""
        if not self._epochs or not 0 <= epoch <= self.latest:
            return UNKNOWN_END
        following = bisect_right(self._epochs, epoch)
        end = self._starts[following] if following < len(self._starts) else log_end
        return (self._epochs[following - 1] if following else epoch), end

    def truncate(self, end: int) -> None:
        """Forget the epochs that began at or after `end`."""
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()

    def forget_before(self, start: int) -> None:
        """Forget the epochs that ended at or before `start`; the one that covers it now begins there."""
        while len(self._starts) > 1 and self._starts[1] <= start:
            self._starts.pop(0)
            self._epochs.pop(0)
        if self._starts and self._starts[0] < start:
            self._starts[0] = start
