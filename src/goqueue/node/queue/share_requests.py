"""What the use cases of share groups take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from goqueue.model.errors import GoQueueError
from goqueue.node.queue.ledgers import Place


class Verdict(IntEnum):
    """What a member says of a record that it holds."""

    GAP = 0  # there is none at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Verdicts(Struct, frozen=True):
    """Of the offsets from `first` to `last`: one for all, or one for each."""

    first: int
    last: int
    kinds: Sequence[Verdict]

    def from_offset(self, start: int) -> Iterator[tuple[int, Verdict]]:
        """Not before `start`. A client may name any span, so take no more of it than there can be."""
        for offset in range(max(self.first, start), self.last + 1):
            yield offset, self.kinds[0] if len(self.kinds) == 1 else self.kinds[offset - self.first]


Said = Mapping[Place, Sequence[Verdicts]]


def _always() -> bool:
    return True


class ShareFetch(Struct, frozen=True):
    """What a member says of what it has, and how much it wants of these partitions. Nothing with a limit of 0."""

    group_id: str
    member_id: str
    places: Sequence[Place]
    said: Said
    limit: int
    bytes_max: int
    wait_ms: int
    is_current: Callable[[], bool] = _always  # whether the member's session is still the one that asked


class Acquired(Struct, frozen=True):
    """Neighbouring records that the member holds now."""

    first: int
    last: int
    deliveries: int


class Shared(Struct):
    """Of one partition: the whole batches, as they are on disk, that hold what the member has got."""

    chunks: list[memoryview] = []
    acquired: list[Acquired] = []
    error: GoQueueError | None = None  # why there are none
    verdict_error: GoQueueError | None = None  # why nothing of what was said of its records counts


class ShareOffset(Struct, frozen=True):
    """Where a share group is in a partition; None if it has not read there."""

    topic: str
    partition: int
    start: int | None
    leader_epoch: int = 0
    lag: int | None = None
    error: GoQueueError | None = None
