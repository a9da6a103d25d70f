"""Messages whose content says which one they are, and the check that each of them is read once, whole and in order."""

from __future__ import annotations

from bench.line import require

_STAMP_BYTES = 12
_FILLER = b"x" * 65_536


def value_of(index: int, value_bytes: int) -> bytes:
    return b"%012d" % index + _FILLER[: value_bytes - _STAMP_BYTES]


def index_of(value: bytes) -> int:
    return int(value[:_STAMP_BYTES])


class Readback:
    """What one reader got of `count` messages that were sent, by producers in turn; what each sent to a partition is in order."""

    def __init__(self, count: int, value_bytes: int, producer_count: int = 1) -> None:
        self._count = count
        self._producer_count = producer_count
        self._filler = _FILLER[: value_bytes - _STAMP_BYTES]
        self._is_seen = bytearray(count)
        self._last: dict[tuple[int, int], int] = {}  # index by partition and producer
        self.seen_count = 0

    def add(self, partition: int, value: bytes | None) -> int:
        """Enter a message; its index."""
        require(value is not None, "a message without a value was read")
        assert value is not None
        require(value[:_STAMP_BYTES].isdigit(), f"a value begins with {value[:_STAMP_BYTES]!r}")
        index = index_of(value)
        require(index < self._count, f"message {index} was read and never sent")
        require(value[_STAMP_BYTES:] == self._filler, f"message {index} has other bytes than were sent")
        require(not self._is_seen[index], f"message {index} was read twice")
        stream = partition, index % self._producer_count
        require(
            index > self._last.get(stream, -1), f"message {index} of partition {partition} is out of order"
        )
        self._is_seen[index] = 1
        self._last[stream] = index
        self.seen_count += 1
        return index

    def require_everything(self) -> None:
        require(self.seen_count == self._count, f"{self._count} were sent, {self.seen_count} read")
