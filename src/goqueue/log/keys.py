"""The last offset of each key, and what of a batch it leaves: the two loops over records that compaction is made of.

Records are copied as they are, never built anew: their deltas hold as long as the batch keeps its base offset. Only where
a batch gets a delete horizon, which takes the place of its base timestamp, every record gets another timestamp delta.

C where the module was compiled (24 bytes a key, keys told apart by a 128-bit hash under a random seed), and Python
otherwise (about 150 bytes a key); the two behave the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

from goqueue.log.records import IS_COMPILED, decode_records_in_python, encode_varint

_DIGEST_BYTES = 16
_SEED_BYTES = 16
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

# how many records stay, whether the batch has a tombstone, and the records that stay; None: the payload as it is
Picked = tuple[int, bool, bytes | None]


class KeyMap(Protocol):
    """Used by one thread at a time. Both methods refuse a malformed payload with a ValueError that names the record."""

    def __len__(self) -> int:
        """How many keys."""

    def note(
        self, data: bytes | memoryview, start: int, count: int, last_offset_delta: int, base_offset: int, /
    ) -> None:
        """A batch that counts: `count` records from byte `start` on. Batches come in the order of the log."""

    def pick(
        self,
        data: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        drops_tombstones: bool,
        base_timestamp: int,
        horizon: int | None,
        /,
    ) -> Picked:
        """What stays of a batch: records without a key, and those that no later one with the same key follows. A batch
        with a tombstone gets the horizon as its base timestamp, if there is one."""


class KeyMapInPython:
    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(
        self, data: bytes | memoryview, start: int, count: int, last_offset_delta: int, base_offset: int, /
    ) -> None:
        for offset_delta, _, key, _, _ in decode_records_in_python(data, start, count, last_offset_delta):
            if key is not None:
                self._offsets[_digest(key)] = base_offset + offset_delta

    def pick(
        self,
        data: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        drops_tombstones: bool,
        base_timestamp: int,
        horizon: int | None,
        /,
    ) -> Picked:
        rows = decode_records_in_python(data, start, count, last_offset_delta)
        kept: list[int] = []
        has_tombstone = False
        for at, (offset_delta, _, key, value, _) in enumerate(rows):
            is_tombstone = key is not None and value is None
            has_tombstone |= is_tombstone
            if key is not None:
                if is_tombstone and drops_tombstones:
                    continue
                if self._offsets.get(_digest(key), -1) > base_offset + offset_delta:
                    continue
            kept.append(at)
        shift = base_timestamp - horizon if has_tombstone and horizon is not None else None
        if len(kept) == len(rows) and shift is None:
            return len(kept), has_tombstone, None
        records = list(_slices(data, start, len(rows)))
        if shift is None:
            return len(kept), has_tombstone, b"".join(records[at] for at in kept)
        return len(kept), has_tombstone, b"".join(_shifted(records[at], shift) for at in kept)


def new_key_map() -> KeyMap:
    return _new()


def _digest(key: bytes) -> bytes:
    """Short keys as they are (never 16 bytes long), longer ones by a digest that is."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _slices(data: bytes | memoryview, position: int, count: int) -> Iterator[bytes]:
    """The records of a payload that has been checked, each with its length."""
    for _ in range(count):
        length, body = _read_varint(data, position)
        yield bytes(data[position : body + length])
        position = body + length


def _shifted(record: bytes, shift: int) -> bytes:
    _, body = _read_varint(record, 0)
    delta, rest = _read_varint(record, body + 1)  # behind the attributes
    encoded = encode_varint(max(_INT64_MIN, min(delta + shift, _INT64_MAX)))
    content = record[body : body + 1] + encoded + record[rest:]
    return encode_varint(len(content)) + content


def _read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number, and where it ends."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


if IS_COMPILED:
    from goqueue.log import _kernel

    def _new() -> KeyMap:
        return _kernel.KeyMap(os.urandom(_SEED_BYTES))

else:

    def _new() -> KeyMap:
        return KeyMapInPython()
