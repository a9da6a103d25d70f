"""Which partition a key belongs to: a change of any hash would scatter the keys of existing topics."""

from __future__ import annotations

import zlib

import aiokafka.partitioner
import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import kafka_python

from goqueue.model.partitioner import Partitioner, partition_for_key

KEYS = st.one_of(st.binary(max_size=40), st.integers(0, 9).map(lambda size: b"\xff" * size))
COUNTS = st.one_of(st.integers(1, 100), st.integers(1, 10_000))
EVERY_HASH = 2**31  # with as many partitions the partition is the hash itself, without its sign


@given(KEYS, COUNTS)
@settings(max_examples=250, deadline=None)
def test_murmur2_places_keys_as_the_kafka_clients_do(key: bytes, count: int) -> None:
    found = partition_for_key(Partitioner.MURMUR2, key, count)
    for murmur2 in (aiokafka.partitioner.murmur2, kafka_python.partitioner.murmur2):
        assert found == (murmur2(key) & 0x7FFFFFFF) % count


@given(KEYS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_crc32_places_keys_as_librdkafka_does(key: bytes, count: int) -> None:
    assert partition_for_key(Partitioner.CRC32, key, count) == zlib.crc32(key) % count


@given(KEYS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_murmur3_places_keys_by_the_hash_without_its_sign(key: bytes, count: int) -> None:
    assert partition_for_key(Partitioner.MURMUR3, key, count) == (mmh3.hash(key) & 0x7FFFFFFF) % count


@given(st.sampled_from(list(Partitioner)), KEYS, COUNTS)
@settings(max_examples=100, deadline=None)
def test_partition_is_always_one_of_the_topic(partitioner: Partitioner, key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(partitioner, key, count) < count
    assert partition_for_key(partitioner, key, 1) == 0


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # from the tests of Kafka's Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_hashes_of_the_java_client(key: bytes, hashed: int) -> None:
    assert partition_for_key(Partitioner.MURMUR2, key, EVERY_HASH) == hashed & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # published vectors of MurmurHash3_x86_32 with seed 0
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_murmur3_gives_the_published_hashes(key: bytes, hashed: int) -> None:
    assert partition_for_key(Partitioner.MURMUR3, key, EVERY_HASH) == hashed & 0x7FFFFFFF


def test_crc32_gives_the_published_check_value() -> None:
    assert partition_for_key(Partitioner.CRC32, b"123456789", 2**32) == 0xCBF43926


@pytest.mark.parametrize(
    ("partitioner", "placements"),
    [
        (Partitioner.MURMUR3, [0, 2, 8, 0, 4, 5]),
        (Partitioner.MURMUR2, [9, 4, 1, 4, 6, 8]),
        (Partitioner.CRC32, [0, 3, 1, 7, 2, 6]),
    ],
)
def test_placements_never_change(partitioner: Partitioner, placements: list[int]) -> None:
    keys = [b"", b"a", b"key", b"user-42", b"\xff" * 5, "zürich".encode()]
    assert [partition_for_key(partitioner, key, 12) for key in keys] == placements
