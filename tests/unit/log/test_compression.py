"""The codecs: round trips, the limit on what they may claim, and snappy's two framings."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.log.compression import (
    CODEC_OF_SETTING,
    DECOMPRESSED_BYTES_MAX,
    Codec,
    codec_of,
    compress,
    decompress,
)
from goqueue.model.errors import InvalidBatch, UnsupportedCompression
from goqueue.model.settings import CompressionType

ROOT = Path(__file__).parents[3]
REAL = [codec for codec in Codec if codec is not Codec.NONE]
EACH_REAL_CODEC = pytest.mark.parametrize("codec", REAL, ids=lambda codec: codec.name.lower())
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
# Sizes around the first buffer (64 KiB, or four times the compressed size) and its doublings.
SIZES = [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 300_000]


def xerial(*blocks: bytes) -> bytes:
    compressed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in compressed)


@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(1, 400))
@settings(max_examples=150, deadline=None)
def test_compressed_bytes_decompress_to_the_same(codec: Codec, piece: bytes, repeats: int) -> None:
    payload = piece * repeats
    assert decompress(codec, memoryview(compress(codec, payload))) == payload


@EACH_REAL_CODEC
@pytest.mark.parametrize("size", SIZES)
def test_any_size_decompresses_up_to_the_limit_and_not_beyond(codec: Codec, size: int) -> None:
    for payload in (bytes(size), bytes(range(256)) * (size // 256) + bytes(size % 256)):
        compressed = compress(codec, payload)
        assert decompress(codec, compressed, max(1, size)) == payload
        if size > 1:
            with pytest.raises(InvalidBatch, match="it would take more"):
                decompress(codec, compressed, size - 1)


@pytest.mark.parametrize(
    ("codec", "library"), [(Codec.GZIP, cramjam.gzip), (Codec.LZ4, cramjam.lz4), (Codec.ZSTD, cramjam.zstd)]
)
def test_streams_that_do_not_state_their_size_decompress(codec: Codec, library: object) -> None:
    """As Java's clients write them."""
    payload = b"0123456789abcdef" * 20_000
    stream = library.Compressor()  # type: ignore[attr-defined] # cramjam has no types
    for start in range(0, len(payload), 10_000):
        stream.compress(payload[start : start + 10_000])
    assert decompress(codec, bytes(stream.finish())) == payload


@EACH_REAL_CODEC
def test_cut_at_any_byte_is_refused(codec: Codec) -> None:
    compressed = compress(codec, b"some text, some text, some other text")
    for end in range(len(compressed)):
        with pytest.raises(InvalidBatch, match=f"the payload does not decompress as {codec.name.lower()}: "):
            decompress(codec, compressed[:end])


@given(st.sampled_from(REAL), st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_or_decompress_within_the_limit(codec: Codec, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 4_096)) <= 4_096
    except InvalidBatch:
        pass


@given(st.sampled_from(REAL), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_are_refused_or_decompress_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(compress(codec, b"some text, some text, some other text" * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, bytes(damaged), 4_096)) <= 4_096
    except InvalidBatch:
        pass


# ---------------------------------------------------------------- bombs

# The last buffer is as large as the limit; the one before it and what the allocator keeps come on top.
BOMB = """
import resource, sys
import cramjam
from goqueue.log.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from goqueue.log.batch import validate_new
from goqueue.model.errors import InvalidBatch
from tests.support.records import assemble_new

codec = Codec[sys.argv[1]]
zeros = bytes(16 * 1024 * 1024)
if codec is Codec.SNAPPY:  # blocks state their size, so one that lies is enough
    payload = b"\\xff\\xff\\xff\\xff\\x0f" + bytes(100)
else:  # frames may follow one another
    payload = compress(codec, zeros) * 64
del zeros
assert len(payload) < 8 * 1024 * 1024
batch = assemble_new(payload, 1, attributes=codec)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
try:
    validate_new(batch, len(batch))
except InvalidBatch as error:
    print(error.sentence)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
assert peak - before < 2 * DECOMPRESSED_BYTES_MAX, (before, peak)
"""


@EACH_REAL_CODEC
def test_bomb_is_refused_and_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB, codec.name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert "it would take more" in done.stdout


def test_snappy_block_that_claims_much_is_refused_before_memory_is_taken() -> None:
    claim = b"\xff\xff\xff\xff\x07" + bytes(100)  # 2 GiB
    for payload in (claim, XERIAL_HEADER + struct.pack(">i", len(claim)) + claim):
        with pytest.raises(InvalidBatch, match="it would take more memory than the limit"):
            decompress(Codec.SNAPPY, payload)


def test_blocks_of_a_xerial_stream_share_one_limit() -> None:
    stream = xerial(bytes(600), bytes(600))
    assert decompress(Codec.SNAPPY, stream, 1_200) == bytes(1_200)
    with pytest.raises(InvalidBatch, match="it would take more memory than the limit"):
        decompress(Codec.SNAPPY, stream, 1_199)


def test_the_limit_leaves_room_for_any_message() -> None:
    assert DECOMPRESSED_BYTES_MAX >= 4 * 16 * 1024 * 1024


# ---------------------------------------------------------------- snappy, numbers and names


@given(st.lists(st.binary(min_size=1, max_size=100), max_size=4))
@settings(max_examples=60, deadline=None)
def test_snappy_in_xerial_framing_decompresses(blocks: list[bytes]) -> None:
    assert decompress(Codec.SNAPPY, xerial(*blocks)) == b"".join(blocks)


@pytest.mark.parametrize("length", [-1, 1_000, 2**31 - 1])
def test_xerial_block_that_does_not_fit_is_refused(length: int) -> None:
    with pytest.raises(InvalidBatch, match=f"a block of {length} bytes does not fit"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"abc")


def test_xerial_stream_cut_within_a_length_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="does not decompress as snappy"):
        decompress(Codec.SNAPPY, xerial(b"abc") + b"\x00\x00")


@pytest.mark.parametrize("attributes", range(256))
def test_codec_is_the_low_three_bits_of_the_attributes(attributes: int) -> None:
    number = attributes % 8
    if number <= 4:
        assert codec_of(attributes) == number
    else:
        with pytest.raises(UnsupportedCompression, match=f"compression codec {number} is unknown"):
            codec_of(attributes)


def test_every_setting_but_the_producers_choice_has_its_codec() -> None:
    assert set(CODEC_OF_SETTING) == set(CompressionType) - {CompressionType.PRODUCER}
    assert sorted(CODEC_OF_SETTING.values()) == sorted(Codec)
