"""What a Spark task gets and does: some spans, one transport, Arrow batches out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from goqueue.log.batch import HEADER_BYTES, read_header
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.errors import DataLoss
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
    transport = opener(task.access)
    try:
        for span in task.spans:
            decoder = SpanDecoder(span, task.columns, committed=task.access.committed)
            yield from decoder.decode(_chunks(span, transport, task.access))
    finally:
        transport.close()


def _chunks(span: Span, transport: Transport, access: Access) -> Iterator[Chunk]:
    """The span's bytes. Where retention overtakes the read and the user can bear it, go on behind what is gone."""
    losses = Losses(fails=access.fails_on_loss)
    start = span.start
    while start < span.end:
        try:
            for chunk in transport.read(span._replace(start=start), committed=access.committed):
                start = max(start, _end_of(chunk))
                yield chunk
            return
        except DataLoss as loss:
            if access.fails_on_loss:
                raise
            earliest = transport.earliest([span.place])[span.place]
            if earliest <= start:
                raise
            losses.report(str(loss))
            start = earliest


def _end_of(chunk: Chunk) -> int:
    """The offset after the chunk's last whole batch."""
    end = position = 0
    while position + HEADER_BYTES <= len(chunk.data):
        header = read_header(chunk.data, position)
        end = header.end_offset
        position += header.size
    return end
