"""What a Spark task gets and does: some spans, one transport, Arrow batches out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.memory import keep_freed_memory
from goqueue.pipeline.source.losses import Losses
from goqueue.pipeline.source.options import Access
from goqueue.pipeline.source.transports import Opener, open_transport
from goqueue.pipeline.span import Chunk, Span, Transport


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Crosses to an executor; everything that it needs is in it."""

    spans: tuple[Span, ...]
    columns: tuple[str, ...]
    access: Access


def read_task(task: InputPartition, opener: Opener = open_transport) -> Iterator[pa.RecordBatch]:
    """The rows of the task's spans. Of a plan without tasks Spark makes one that is not ours and has no rows."""
    if not isinstance(task, ReadTask):
        return
    keep_freed_memory()
    transport = opener(task.access)
    try:
        for span in task.spans:
            decoder = SpanDecoder(span, task.columns, committed=task.access.committed)
            yield from decoder.decode(_chunks(decoder, span, transport, task.access))
    finally:
        transport.close()


def _chunks(decoder: SpanDecoder, span: Span, transport: Transport, access: Access) -> Iterator[Chunk]:
    """The span's bytes, for this decoder. Where retention overtakes the read and the user can bear it, go on behind what is
    gone."""
    losses = Losses(fails=access.fails_on_loss)
    start = span.start
    while start < span.end:
        try:
            yield from transport.read(span._replace(start=start), committed=access.committed)
            return
        except DataLoss as loss:
            if access.fails_on_loss:
                raise
            start = max(start, decoder.next_offset)
            earliest = transport.earliest([span.place])[span.place]
            if earliest <= start:
                raise
            losses.report(str(loss))
            start = earliest
