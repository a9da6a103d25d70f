"""One task's rows into batches, a window of rows at a time.

A window holds about one full batch for each partition that the task writes to, within a limit, so memory does not grow with
the task. All rows of a window are routed at once and then encoded place by place.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.pipeline.arrow.encode import SinkRows, record_sizes
from goqueue.pipeline.sink.bad_rows import BadRowPolicy
from goqueue.pipeline.sink.flaws import Flaw
from goqueue.pipeline.sink.options import MIB, SinkOptions
from goqueue.pipeline.sink.outlet import Outlet, cuts
from goqueue.pipeline.sink.routing import BATCH_OVERHEAD_BYTES, NOWHERE, Routed, Router
from goqueue.pipeline.sink.rows import Longs, joined
from goqueue.pipeline.sink.topic_facts import TopicFinder

WINDOW_BYTES_MAX: Final = 32 * MIB
_INT16_MAX: Final = 2**15 - 1


@dataclass(slots=True)
class TaskWriter:
    options: SinkOptions
    names: Sequence[str]
    finder: TopicFinder
    router: Router
    policy: BadRowPolicy
    outlet: Outlet
    rows: Counter[str] = field(default_factory=Counter)  # by topic
    _place_count: int = 1

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Returns when every row is stored as the options say, or raises."""
        for window in self._windows(batches):
            self._write(window)
        self.outlet.sender.flush()

    def _windows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in batches:
            for part in _parts(batch):
                held.append(part)
                held_bytes += part.nbytes
                if held_bytes >= min(WINDOW_BYTES_MAX, self._place_count * self.options.batch_bytes):
                    yield held
                    held, held_bytes = [], 0
        if held:
            yield held

    def _write(self, window: list[pa.RecordBatch]) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = joined(window, self.names)
        rows = SinkRows.of(batch, schema_id=self.options.schema_id)
        sizes = record_sizes(rows)
        routed = self.router.route(batch, sizes, now_ms=now_ms)
        for index in rows.problems:
            routed.flaws[index] = routed.flaws[index] or Flaw.OTHER
            routed.places[index] = NOWHERE
        self.policy.take(batch, routed, rows.problems, sizes, self.outlet, now_ms=now_ms)
        self._send(rows, routed, sizes, now_ms)

    def _send(self, rows: SinkRows, routed: Routed, sizes: Longs, now_ms: int) -> None:
        """Rows of a place in the order in which they came."""
        numbers = routed.places
        if len(self.finder.places) <= _INT16_MAX:
            numbers = numbers.astype(np.int16)  # which numpy sorts by radix
        order = np.argsort(numbers, kind="stable")
        ordered = routed.places[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=NOWHERE - 1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            number = int(ordered[start])
            if number == NOWHERE:
                continue
            place, facts = self.finder.places[number], self.finder.of_place(number)
            picked = order[start:end]
            bytes_max = facts.settings.max_message_bytes
            limit = min(self.options.batch_bytes, bytes_max - BATCH_OVERHEAD_BYTES)
            for first, last in cuts(sizes[picked], limit):
                self.outlet.send_rows(place, rows, picked[first:last], bytes_max=bytes_max, now_ms=now_ms)
            self.rows[place.topic] += end - start
        self._place_count = max(self._place_count, len(starts))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch of Spark's may be larger than a window: in halves until it is not, or a row is alone."""
    if batch.nbytes <= WINDOW_BYTES_MAX or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    middle = batch.num_rows // 2
    yield from _parts(batch.slice(0, middle))
    yield from _parts(batch.slice(middle))
