"""A stream: what has come since the offset that Spark's checkpoint has, in bites of the size that was asked for.

The one reader of a query lives on the driver and may keep a transport open; those that Spark makes to read with hold nothing.
Everything that a restart needs is in the offsets (see `offsets.py`): what is kept here only saves work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import KafkaError
from goqueue.pipeline.source.bounds import resolve
from goqueue.pipeline.source.limits import share_bytes, share_offsets, waiting_count
from goqueue.pipeline.source.losses import Losses, carry_on, readable
from goqueue.pipeline.source.offsets import MARKER, Json, Offsets, is_marker
from goqueue.pipeline.source.options import SourceOptions
from goqueue.pipeline.source.planning import plan
from goqueue.pipeline.source.progress import Progress
from goqueue.pipeline.source.sampling import SAMPLE_FETCH_BYTES, RecordSizes
from goqueue.pipeline.source.tasks import ReadTask, read_task
from goqueue.pipeline.source.transports import Opener, open_transport
from goqueue.pipeline.span import Place, Transport

LOG = logging.getLogger("goqueue.pipeline.source")
Clock = Callable[[], float]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`clock` is monotonic, in seconds."""

    def __init__(
        self, options: SourceOptions, opener: Opener = open_transport, clock: Clock = time.monotonic
    ) -> None:
        self._options = options
        self._opener = opener
        self._clock = clock
        self._losses = Losses(fails=options.access.fails_on_loss)
        self._sizes = RecordSizes(options.access.committed)
        self._progress = Progress(options)
        self._transport: Transport | None = None
        self._sampler: Transport | None = None
        self._target: dict[Place, int] | None = None  # where Trigger.AvailableNow stops
        self._latest: dict[Place, int] = {}
        self._last_batch_s: float | None = None

    def initialOffset(self) -> Json:
        return dict(MARKER)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark shows; the limits are applied here, all of them together, which Spark's classes cannot say."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._now()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next batch, or `start` itself if there is to be none."""
        latest = self._latest = self._now() if self._target is None else dict(self._target)
        if is_marker(start):
            begins = self._beginning(latest)
        else:
            self._progress.publish(start)
            begins = carry_on(Offsets.of(start), latest, self._open(), self._options, self._losses)
        ends = {place: max(begin, latest[place]) for place, begin in begins.at.items()}
        if not isinstance(limit, ReadAllAvailable):
            if not is_marker(start) and self._is_to_wait(waiting_count(begins.at, ends)):
                return start
            ends = self._limited(begins.at, ends)
        if not is_marker(start) and ends == Offsets.of(start).at:
            return start
        self._last_batch_s = self._clock()
        return Offsets(ends, begins.begun).to_json()

    def reportLatestOffset(self) -> Json | None:
        return Offsets(self._latest).to_json() if self._latest else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        spans = Offsets.of(end).spans_since(Offsets.of(start))
        there = readable(spans, self._latest, self._open(), self._losses)
        columns, access = self._options.columns, self._options.access
        return [ReadTask(task, columns, access) for task in plan(there, self._options.sizes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._opener)

    def commit(self, end: Json) -> None:
        self._progress.publish(end)

    def stop(self) -> None:
        for transport in (self._transport, self._sampler):
            if transport is not None:
                transport.close()
        self._transport = self._sampler = None
        self._progress.close()

    def _now(self) -> dict[Place, int]:
        transport, places_in = self._open(), self._options.subscription.places
        places = places_in(transport.topics())
        while places:
            try:
                return transport.latest(places, committed=self._options.access.committed)
            except KafkaError as error:
                listed, places = places, places_in(transport.topics())
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or places == listed:
                    raise  # or one has gone since they were listed
        return {}

    def _beginning(self, latest: Mapping[Place, int]) -> Offsets:
        """Looked up once in the life of a query: the end of its first batch carries it into the checkpoint."""
        transport = self._open()
        self._options.subscription.check(transport.topics())
        begins = (
            resolve(self._options.starting, transport, latest, option="startingOffsets") if latest else {}
        )
        return Offsets(begins, begins)

    def _is_to_wait(self, count: int) -> bool:
        """Whether too little is there and it is too early. Trigger.AvailableNow waits for nothing."""
        limits = self._options.limits
        if limits.offsets_min is None or self._target is not None or self._last_batch_s is None:
            return False
        waited_ms = (self._clock() - self._last_batch_s) * 1_000
        return count < limits.offsets_min and waited_ms < limits.delay_ms_max

    def _limited(self, begins: Mapping[Place, int], ends: dict[Place, int]) -> dict[Place, int]:
        limits = self._options.limits
        if limits.bytes_max is not None:
            sizes = self._sizes.of(begins, ends, self._open_sampler())
            ends = share_bytes(begins, ends, sizes, limits.bytes_max)
        if limits.offsets_max is not None:
            ends = share_offsets(begins, ends, limits.offsets_max)
        return ends

    def _open(self) -> Transport:
        if self._transport is None:
            if self._options.ignored:
                LOG.warning("a stream takes no notice of %s", ", ".join(self._options.ignored))
            self._transport = self._opener(self._options.access)
        return self._transport

    def _open_sampler(self) -> Transport:
        if self._sampler is None:
            small = min(SAMPLE_FETCH_BYTES, self._options.access.fetch_bytes)
            self._sampler = self._opener(replace(self._options.access, fetch_bytes=small))
        return self._sampler
