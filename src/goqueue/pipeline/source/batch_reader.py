"""A batch: everything between two bounds, fixed when it is planned."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.source.bounds import AtOffsets, resolve
from goqueue.pipeline.source.filters import Narrowing, push
from goqueue.pipeline.source.losses import Losses, readable
from goqueue.pipeline.source.options import SourceOptions
from goqueue.pipeline.source.planning import plan
from goqueue.pipeline.source.tasks import ReadTask, read_task
from goqueue.pipeline.source.transports import Opener, open_transport
from goqueue.pipeline.span import Place, Span, Transport

LOG = logging.getLogger("goqueue.pipeline.source")


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on executors; it is pickled in between and holds nothing open."""

    def __init__(self, options: SourceOptions, opener: Opener = open_transport) -> None:
        self._options = options
        self._opener = opener
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        if self._options.ignored:
            LOG.warning("a batch takes no notice of %s", ", ".join(self._options.ignored))
        transport = self._opener(self._options.access)
        try:
            spans = self._narrowing.apply(self._spans(transport), transport)
        finally:
            transport.close()
        columns, access = self._options.columns, self._options.access
        return [ReadTask(task, columns, access) for task in plan(spans, self._options.sizes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._opener)

    def _spans(self, transport: Transport) -> list[Span]:
        options = self._options
        counts = transport.topics()
        options.subscription.check(counts)
        places = options.subscription.places(counts)
        latest = transport.latest(places, committed=options.access.committed)
        ends = resolve(options.ending, transport, latest, option="endingOffsets")
        begins = resolve(options.starting, transport, latest, option="startingOffsets")
        spans = [span for place in places if (span := self._span(place, begins, ends)) is not None]
        return readable(spans, latest, transport, Losses(fails=options.access.fails_on_loss))

    def _span(self, place: Place, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> Span | None:
        span = Span(*place, begins[place], ends[place])
        if span.start > span.end and any(
            isinstance(bound, AtOffsets) for bound in (self._options.starting, self._options.ending)
        ):
            raise OptionError(
                f"{place.topic}-{place.partition} is to be read from {span.start} to {span.end}, which is backward: "
                "endingOffsets must not lie before startingOffsets"
            )
        return span if span.size > 0 else None


class FilteringBatchReader(BatchReader):
    """The same for sessions that push filters down. Spark refuses it in others, so it is a class of its own."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing, rest = push(filters)
        return rest
