"""How large records are, by looking at a few: brokers know bytes and offsets, but do not tell one from the other.

The bytes are those on the wire, compressed as they are stored. A sample is kept for some triggers, then taken anew."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from goqueue.log.batch import HEADER_BYTES, read_header
from goqueue.pipeline.span import Chunk, Place, Span, Transport

SAMPLE_FETCH_BYTES = 64 << 10
SAMPLE_OFFSETS = 1_000
KEPT_TRIGGERS = 20


@dataclass(slots=True)
class _Sample:
    record_bytes: float
    triggers_left: int = KEPT_TRIGGERS


@dataclass(slots=True)
class RecordSizes:
    """Bytes per offset of each partition, from the records that are next."""

    committed: bool
    _samples: dict[Place, _Sample] = field(default_factory=dict)

    def of(
        self, begins: Mapping[Place, int], ends: Mapping[Place, int], transport: Transport
    ) -> dict[Place, float]:
        """Of all that have something waiting. `transport` may be one that fetches little at a time."""
        sizes: dict[Place, float] = {}
        for place, begin in begins.items():
            if begin >= ends[place]:
                continue
            sample = self._samples.get(place)
            if sample is None or sample.triggers_left == 0:
                end = min(ends[place], begin + SAMPLE_OFFSETS)
                sample = self._samples[place] = _Sample(self._look(Span(*place, begin, end), transport))
            sample.triggers_left -= 1
            sizes[place] = sample.record_bytes
        return sizes

    def _look(self, span: Span, transport: Transport) -> float:
        chunks = transport.read(span, committed=self.committed)
        chunk = next(chunks, None)
        size = 0.0 if chunk is None else bytes_per_offset(chunk)
        if isinstance(chunks, Generator):
            chunks.close()  # or it would ask for the rest
        return size


def bytes_per_offset(chunk: Chunk) -> float:
    size = offsets = position = 0
    while position + HEADER_BYTES <= len(chunk.data):
        header = read_header(chunk.data, position)
        if position + header.size > len(chunk.data):
            break
        offsets += header.end_offset - header.base_offset
        size += header.size
        position += header.size
    return size / offsets if offsets else 0.0
