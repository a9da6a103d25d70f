"""Which partition a key belongs to. Three hashes, so that mixed clients agree on one topic:
murmur3 is ours, murmur2 that of Kafka's Java clients, crc32 that of librdkafka."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import StrEnum

import mmh3


class Partitioner(StrEnum):
    MURMUR3 = "murmur3"
    MURMUR2 = "murmur2"
    CRC32 = "crc32"


def partition_for_key(partitioner: Partitioner, key: bytes, partition_count: int) -> int:
    return _HASHES[partitioner](key) % partition_count


def hash_key(partitioner: Partitioner, key: bytes) -> int:
    return _HASHES[partitioner](key)


def _murmur3(key: bytes) -> int:
    return mmh3.hash(key, signed=False) & 0x7FFFFFFF


def _murmur2(key: bytes) -> int:
    """Kafka's variant (seed 0x9747b28c), with the sign bit cleared as its default partitioner does."""
    length = len(key)
    multiplier = 0x5BD1E995
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & 0xFFFFFFFF
        word = (word ^ word >> 24) * multiplier & 0xFFFFFFFF
        hashed = hashed * multiplier & 0xFFFFFFFF ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * multiplier & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * multiplier & 0xFFFFFFFF
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


_HASHES: dict[Partitioner, Callable[[bytes], int]] = {
    Partitioner.MURMUR3: _murmur3,
    Partitioner.MURMUR2: _murmur2,
    Partitioner.CRC32: zlib.crc32,
}
