"""A batch under another codec: what a topic does whose `compression.type` is not its producer's choice."""

from __future__ import annotations

from goqueue.log.batch import HEADER_BYTES, BatchHeader, assemble, read_header
from goqueue.log.compression import CODEC_BITS, Codec, codec_of, compress, decompress


def recompressed(batch: bytes, header: BatchHeader, codec: Codec) -> tuple[BatchHeader, bytes]:
    """The same records under `codec`; length and checksum are new, everything else stays. It may be larger than before:
    the caller holds it against the topic's limit."""
    present = codec_of(header.attributes)
    if present is codec:
        return header, batch
    payload = compress(codec, decompress(present, memoryview(batch)[HEADER_BYTES : header.size]))
    changed = assemble(header._replace(attributes=header.attributes & ~CODEC_BITS | codec), payload)
    return read_header(changed), changed
