"""What members of a classic group of consumers are given: Kafka's `ConsumerProtocolAssignment`. Every version (0 to 3) is an
int16 version, the topics with their partitions, and data of the assignor's own, which is passed on as it is."""

from __future__ import annotations

import struct
from collections.abc import Collection

from goqueue.core.group.consumer_events import Partition

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def assigned_partitions(data: bytes) -> list[Partition]:
    """In the order in which they are there; none, if these bytes are no assignment."""
    return _parsed(data)[0]


def without_partitions(data: bytes, withheld: Collection[Partition]) -> bytes:
    """Topics of which nothing is left are left out."""
    partitions, end = _parsed(data)
    if not any(partition in withheld for partition in partitions):
        return data
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        if (topic, index) not in withheld:
            topics.setdefault(topic, []).append(index)
    parts = [data[: _int16.size], _int32.pack(len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [_int16.pack(len(name)), name, struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join(parts) + data[end:]


def parse_partitions(data: bytes, at: int) -> tuple[list[Partition], int]:
    """An array of topics with their partitions, and where it ends. Raises struct.error or UnicodeDecodeError."""
    partitions: list[Partition] = []
    (topic_count,) = _int32.unpack_from(data, at)
    at += _int32.size
    for _ in range(_checked(topic_count, data)):
        (length,) = _int16.unpack_from(data, at)
        at += _int16.size
        topic = data[at : at + _checked(length, data)].decode()
        at += length
        (count,) = _int32.unpack_from(data, at)
        at += _int32.size
        indexes = struct.unpack_from(f">{_checked(count, data)}i", data, at)
        at += _int32.size * count
        partitions += [(topic, index) for index in indexes]
    return partitions, at


def _parsed(data: bytes) -> tuple[list[Partition], int]:
    try:
        return parse_partitions(data, _int16.size)
    except (struct.error, UnicodeDecodeError):
        return [], len(data)


def _checked(count: int, data: bytes) -> int:
    if not 0 <= count <= len(data):
        raise struct.error(f"{count} is no count of what is in {len(data)} bytes")
    return count
