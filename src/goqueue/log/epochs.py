"""Which leader wrote which offsets: (epoch, first offset) pairs, rising in both.

A log that lost its unsynced tail may assign the same offset twice, but never under the same epoch, and the
history is on disk before the first batch of an epoch is. Followers and Kafka clients use it to find where
two histories part: two logs that have an offset of the same epoch are equal up to there (KIP-101, KIP-320)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from goqueue.model.errors import invariant

NO_EPOCH = -1
UNKNOWN_END = (NO_EPOCH, -1)

_Pairs = tuple[tuple[int, ...], tuple[int, ...]]


class LeaderEpochs:
    def __init__(self, entries: Iterable[tuple[int, int]] = (), latest: int = NO_EPOCH) -> None:
        # Epochs and their first offsets, always replaced together: readers in other threads look up in them.
        self._pairs: _Pairs = ((), ())
        self.latest = NO_EPOCH  # also of epochs that left no trace: a number is never used twice
        for epoch, start in entries:
            self.begin(epoch, start)
        self.latest = max(self.latest, latest)

    def entries(self) -> list[tuple[int, int]]:
        epochs, starts = self._pairs
        return list(zip(epochs, starts, strict=True))

    @property
    def current(self) -> int:
        """The epoch of the next batch, if nobody begins or adopts another; NO_EPOCH if there is none."""
        epochs, _ = self._pairs
        return epochs[-1] if epochs else NO_EPOCH

    def begin(self, epoch: int, start: int) -> None:
        """A new leader writes from `start` on. An epoch that wrote nothing leaves no trace."""
        invariant(epoch > self.latest, f"leader epoch {epoch} does not follow {self.latest}")
        self.truncate(start)
        self._add(epoch, start)

    def adopt(self, epoch: int, start: int) -> None:
        """What another leader wrote from `start` on is of `epoch`. It may be below the latest: of that one, this log then
        has nothing left."""
        self.truncate(start + 1)
        if self.current == epoch:
            return
        self.truncate(start)
        invariant(epoch >= self.current, f"leader epoch {epoch} at {start} does not follow {self.current}")
        if epoch > self.current:
            self._add(epoch, start)

    def _add(self, epoch: int, start: int) -> None:
        epochs, starts = self._pairs
        self._pairs = (*epochs, epoch), (*starts, start)
        self.latest = max(self.latest, epoch)

    def at(self, offset: int) -> int | None:
        """The epoch under which an offset was written."""
        epochs, starts = self._pairs
        at = bisect_right(starts, offset) - 1
        return epochs[at] if at >= 0 else None

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Up to where this log is the one that a reader of `epoch` knows, as Kafka answers it (KIP-320): the largest known
        epoch that is not above it, and where that ends. What an epoch below all known ones wrote is gone, so that whoever
        has read it goes on at the first; of an epoch that never was, nothing is known."""
        epochs, _ = self._pairs
        if not epochs or not 0 <= epoch <= self.latest:
            return UNKNOWN_END
        return self._end_of(epoch, log_end)

    def _end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        epochs, starts = self._pairs
        following = bisect_right(epochs, epoch)
        end = starts[following] if following < len(starts) else log_end
        return (epochs[following - 1] if following else epoch), end

    def diverging(self, last_epoch: int, offset: int, log_end: int) -> tuple[int, int] | None:
        """None where a follower whose log ends at `offset` with a batch of `last_epoch` (NO_EPOCH: it is empty) may go on
        from there in this log, which ends at `log_end`. Else the largest epoch here that is not above the follower's and
        where it ends: behind that, the follower has what this log has not (see `common_end`).

        An offset before the start of this log is for the caller to refuse: what was there cannot be compared."""
        if last_epoch == NO_EPOCH:
            return None if offset <= log_end else (self.current, log_end)
        epoch, end = self._end_of(last_epoch, log_end)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def common_end(self, epoch: int, end: int, log_end: int) -> int:
        """Where a follower with these epochs and this log end cuts its log when its leader answers that `epoch` ends at
        `end`. What it has of later epochs goes, and what it has behind the end; the next fetch compares again."""
        if epoch == NO_EPOCH:
            return min(end, log_end)
        return min(end, log_end, self._end_of(epoch, log_end)[1])

    def truncate(self, end: int) -> None:
        """Forget the epochs that began at or after `end`."""
        epochs, starts = self._pairs
        count = bisect_left(starts, end)
        if count < len(starts):
            self._pairs = epochs[:count], starts[:count]

    def forget_before(self, start: int) -> None:
        """Forget the epochs that ended at or before `start`; the one that covers it now begins there."""
        epochs, starts = self._pairs
        first = bisect_right(starts, start) - 1
        if first >= 0:
            self._pairs = epochs[first:], (start, *starts[first + 1 :])
