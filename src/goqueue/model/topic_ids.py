"""Topics by the 128-bit ids of Kafka's protocol, made from the numbers that the catalogue gives out.

The upper half is a constant, so no id is one of those that Kafka keeps for itself (0 and 1); the lower half is the
number, which is never given twice.
"""

from __future__ import annotations

from uuid import UUID

_PREFIX = b"goqueue\x00"
_NUMBER_BYTES = 8


def topic_id(number: int) -> bytes:
    """Of a topic's number in the catalogue, which is from 1 up."""
    if not 0 < number < 1 << 8 * _NUMBER_BYTES:
        raise ValueError(f"topic number {number} is not from 1 to 2**{8 * _NUMBER_BYTES} - 1")
    return _PREFIX + number.to_bytes(_NUMBER_BYTES, "big")


def topic_number(id: bytes) -> int | None:
    """The number that `topic_id` was given; None if no topic can have this id."""
    return int.from_bytes(id[len(_PREFIX) :], "big") or None if id.startswith(_PREFIX) else None


def topic_uuid(number: int) -> UUID:
    return UUID(bytes=topic_id(number))
