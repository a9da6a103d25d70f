"""A transport whose topics are in memory: what the Spark source reads, without a broker and without files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goqueue.log.batch import PREFIX, build_batch, read_header
from goqueue.model.record import NewRecord
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.span import Chunk, Place, Span


class TopicsInMemory:
    """Each `add` is one batch. Tests move the ends by hand."""

    def __init__(self, **counts: int) -> None:
        self.counts = dict(counts)
        self.batches: dict[Place, list[bytes]] = {}
        self.starts: dict[Place, int] = {}
        self.stable: dict[Place, int] = {}  # last stable offsets, where they are not the end
        self.reads: list[Span] = []
        self.is_open = True

    def add(
        self, topic: str, partition: int, count: int, *, timestamp_ms: int = 1_000, size: int = 1
    ) -> None:
        place = Place(topic, partition)
        base = self.end(place)
        records = [NewRecord(f"k{base + i}".encode(), f"{base + i}".encode() * size) for i in range(count)]
        batch = build_batch(records, timestamp_ms)
        _, length, _ = PREFIX.unpack_from(batch)
        self.batches.setdefault(place, []).append(PREFIX.pack(base, length, 0) + batch[PREFIX.size :])

    def age_out(self, topic: str, partition: int, before: int) -> None:
        place = Place(topic, partition)
        self.starts[place] = before
        self.batches[place] = [one for one in self.batches[place] if read_header(one).end_offset > before]

    def forget(self, topic: str) -> None:
        del self.counts[topic]
        for place in [place for place in self.batches if place.topic == topic]:
            del self.batches[place]

    def end(self, place: Place) -> int:
        batches = self.batches.get(place)
        return read_header(batches[-1]).end_offset if batches else self.starts.get(place, 0)

    def topics(self) -> dict[str, int]:
        return dict(self.counts)

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.starts.get(place, 0) for place in places}

    def latest(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        return {
            place: self.stable.get(place, self.end(place)) if committed else self.end(place)
            for place in places
        }

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
        return {place: self._first(place, timestamp_ms) for place in places}

    def read(self, span: Span, *, committed: bool) -> Iterator[Chunk]:
        self.reads.append(span)
        if span.start < self.starts.get(span.place, 0):
            raise DataLoss(f"offset {span.start} of {span.topic}-{span.partition} is gone")
        for batch in self.batches.get(span.place, []):
            header = read_header(batch)
            if header.end_offset > span.start and header.base_offset < span.end:
                yield Chunk(batch)

    def close(self) -> None:
        self.is_open = False

    def _first(self, place: Place, timestamp_ms: int) -> int | None:
        for batch in self.batches.get(place, []):
            header = read_header(batch)
            if header.max_timestamp >= timestamp_ms:
                return header.base_offset
        return None
