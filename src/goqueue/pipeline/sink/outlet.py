"""Where a task's rows leave it: batches with the producer's sequence for each partition, handed to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.log.compression import Codec
from goqueue.model.record import NewRecord, Producer
from goqueue.pipeline.arrow.encode import SinkRows, encode_rows
from goqueue.pipeline.sink.ports import Sender
from goqueue.pipeline.sink.rows import Longs
from goqueue.pipeline.span import Place

Picked = npt.NDArray[np.int64]


@dataclass(slots=True)
class Outlet:
    sender: Sender
    codec: Codec
    is_transactional: bool

    def send_rows(self, place: Place, rows: SinkRows, picked: Picked, *, bytes_max: int, now_ms: int) -> None:
        """As one batch. Where compression makes it longer than the topic takes, it is sent without."""
        batch = self._encoded(place, rows, picked, self.codec, now_ms)
        if len(batch) > bytes_max and self.codec is not Codec.NONE:
            batch = self._encoded(place, rows, picked, Codec.NONE, now_ms)
        self.sender.send(*place, batch)

    def send_records(self, place: Place, records: Sequence[NewRecord], *, now_ms: int) -> None:
        attributes = ATTRIBUTE_TRANSACTIONAL if self.is_transactional else 0
        _, batch = encode_batch(records, now_ms, producer=self._producer(place), attributes=attributes)
        self.sender.send(*place, batch)

    def _encoded(self, place: Place, rows: SinkRows, picked: Picked, codec: Codec, now_ms: int) -> bytes:
        return encode_rows(
            rows,
            picked,
            codec=codec,
            producer=self._producer(place),
            is_transactional=self.is_transactional,
            timestamp_ms=now_ms,
        )

    def _producer(self, place: Place) -> Producer | None:
        producer = self.sender.producer
        return None if producer is None else Producer(*producer, self.sender.sequence(*place))


def cuts(sizes: Longs, bytes_max: int) -> list[tuple[int, int]]:
    """Stretches [start, end) of rows that fit one batch, about equally large; a row that is too large is alone."""
    total = int(sizes.sum())
    if total <= bytes_max:
        return [(0, len(sizes))]
    ends = np.cumsum(sizes)
    share = min(bytes_max, total // -(-total // bytes_max) + int(sizes.max()))
    found, start, done = [], 0, 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(ends, done + share, side="right")))
        found.append((start, end))
        start, done = end, int(ends[end - 1])
    return found
