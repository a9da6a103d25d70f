"""Records as the rest of the program sees them. `bytes` in, `bytes` out; nothing here knows a file."""

from __future__ import annotations

from msgspec import Struct

Header = tuple[str, bytes | None]


class NewRecord(Struct, frozen=True, gc=False):
    """A record on its way into a log. A value of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class StoredRecord(Struct, frozen=True, gc=False):
    """A record read back from a log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Producer(Struct, frozen=True, gc=False):
    """Who writes, for producers that ask for idempotence; `sequence` is that of the first record."""

    id: int
    epoch: int
    sequence: int
