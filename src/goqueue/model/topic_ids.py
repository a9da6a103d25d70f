"""Topics by the 128-bit ids of Kafka's protocol, made from the numbers that the catalogue gives out.

The upper half is a constant, so no id is one of those that Kafka keeps for itself (0 and 1); the lower half is the
number, which is never given twice.
"""

from __future__ import annotations

from uuid import UUID

_PREFIX = int.from_bytes(b"goqueue\x00", "big")
_NUMBER_BITS = 64


def topic_uuid(id: int) -> UUID:
    """Of a topic's number in the catalogue, which is from 1 up."""
    if not 0 < id < 1 << _NUMBER_BITS:
        raise ValueError(f"topic number {id} is not from 1 to 2**{_NUMBER_BITS} - 1")
    return UUID(int=_PREFIX << _NUMBER_BITS | id)


def topic_number(uuid: UUID) -> int | None:
    """The number that `topic_uuid` was given; None if no topic can have this id."""
    prefix, number = divmod(uuid.int, 1 << _NUMBER_BITS)
    return number if prefix == _PREFIX and number else None
