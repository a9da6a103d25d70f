"""The codecs of a batch's payload, by Kafka's numbers, from one library (cramjam).

Snappy comes in two framings in the wild: plain blocks (librdkafka and others) and xerial's stream of
blocks (the Java client's snappy-java). Both are read; plain blocks are written, which every client reads.
Decompression stops at a limit, so that a small batch cannot claim all memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from goqueue.model.errors import InvalidBatch, UnsupportedCompression
from goqueue.model.settings import CompressionType

CODEC_BITS = 0x07  # of a batch's attributes
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
_BUFFER_BYTES_MIN = 64 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">i")


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_OF_SETTING = {
    CompressionType.NONE: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


def codec_of(attributes: int) -> Codec:
    number = attributes & CODEC_BITS
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCompression(
            f"compression codec {number} is unknown; 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd", codec=number
        ) from None


def compress(codec: Codec, payload: bytes) -> bytes:
    match codec:
        case Codec.NONE:
            return payload
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(payload))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(payload))
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(payload))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload))


def decompress(codec: Codec, payload: bytes | memoryview, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    try:
        match codec:
            case Codec.NONE:
                return bytes(payload)
            case Codec.SNAPPY:
                return _decompress_snappy(bytes(payload), bytes_max)
            case Codec.GZIP:
                return _decompress_growing(cramjam.gzip.decompress_into, bytes(payload), bytes_max)
            case Codec.LZ4:
                return _decompress_growing(cramjam.lz4.decompress_into, bytes(payload), bytes_max)
            case Codec.ZSTD:
                return _decompress_growing(cramjam.zstd.decompress_into, bytes(payload), bytes_max)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise InvalidBatch(f"the payload does not decompress as {codec.name.lower()}: {error}") from None


def _decompress_growing(into: Callable[[bytes, bytearray], int], payload: bytes, bytes_max: int) -> bytes:
    """Formats that do not state their size: into a buffer that doubles up to the limit."""
    size = min(max(4 * len(payload), _BUFFER_BYTES_MIN), bytes_max)
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: into(payload, buffer)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
        if size == bytes_max:
            raise ValueError(f"it would take more than {bytes_max} bytes")
        size = min(size * 2, bytes_max)


def _decompress_snappy(payload: bytes, bytes_max: int) -> bytes:
    if not payload.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(payload, bytes_max)
    out = []
    position = _XERIAL_HEADER_BYTES
    while position < len(payload):
        (length,) = _LENGTH.unpack_from(payload, position)
        position += _LENGTH.size
        if not 0 <= length <= len(payload) - position:
            raise ValueError(f"a block of {length} bytes does not fit")
        out.append(_decompress_snappy_block(payload[position : position + length], bytes_max))
        bytes_max -= len(out[-1])
        position += length
    return b"".join(out)


def _decompress_snappy_block(block: bytes, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise ValueError("it would take more memory than the limit")
    return bytes(cramjam.snappy.decompress_raw(block))
