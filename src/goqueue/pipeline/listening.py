"""What running queries tell: progress as numbers, metrics for Prometheus, and offsets of consumer groups for tools that show lag.

Spark's checkpoint is the truth. Group offsets are published so that ordinary Kafka tools show how far a query is behind, and are
never read back; a broker that does not take them costs the query nothing. The source's own `commit` never comes for the
last batch, so all of this is fed by Spark's listener.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pyspark.sql.streaming.listener import StreamingQueryListener

from goqueue.client.kafka.cluster import KafkaCluster
from goqueue.client.kafka.errors import KafkaError
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.source.network import connect
from goqueue.pipeline.source.offsets import positions

OBSERVED: Final = "goqueue_rows"  # an observation of this name with a column `count` says what was written
CLOSE_TIMEOUT_S: Final = 10.0
COMMIT_TIMEOUT_S: Final = 5.0
_DURATIONS_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

Offsets = Mapping[tuple[str, int], int]


class _Source(msgspec.Struct, frozen=True):
    endOffset: Any = None
    latestOffset: Any = None


class _Event(msgspec.Struct, frozen=True):
    """Spark's progress, as far as it is looked at."""

    batchId: int
    timestamp: str
    name: str | None = None
    batchDuration: int = 0
    numInputRows: int = 0
    sources: list[_Source] = []
    observedMetrics: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch of one query. `rows_out` is None where nothing observes what is written."""

    query: str
    batch_id: int
    at: str
    duration_ms: int
    rows_in: int
    rows_out: int | None
    offsets: (
        Offsets  # exclusive ends of what has been read; of two sources with the same topic, of the one behind
    )
    lag: Mapping[str, int]  # by topic: offsets that are there and have not been read


class Observer(Protocol):
    """Called from Spark's thread: quick, and never failing."""

    def progressed(self, progress: Progress) -> None: ...

    def ended(self, query: str, failure: str | None) -> None: ...


def read_progress(text: str | bytes) -> Progress:
    """Of the JSON that Spark gives for a micro-batch."""
    event = msgspec.json.decode(text, type=_Event)
    ends: dict[tuple[str, int], int] = {}
    lag: dict[str, int] = {}
    for source in event.sources:
        ends_here = _positions(source.endOffset)
        ends |= {place: min(end, ends.get(place, end)) for place, end in ends_here.items()}
        for place, latest in _positions(source.latestOffset).items():
            behind = max(0, latest - ends_here.get(place, 0))
            lag[place[0]] = lag.get(place[0], 0) + behind
    observed = event.observedMetrics.get(OBSERVED)
    rows_out = observed.get("count") if isinstance(observed, dict) else None
    return Progress(
        query=event.name or "",
        batch_id=event.batchId,
        at=event.timestamp,
        duration_ms=event.batchDuration,
        rows_in=event.numInputRows,
        rows_out=rows_out,
        offsets=ends,
        lag=lag,
    )


class Listener(StreamingQueryListener):
    """Hands what queries tell to observers. Add it with `spark.streams.addListener`."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # Any: Spark's event
        self._names[str(event.runId)] = event.name or ""

    def onQueryProgress(self, event: Any) -> None:
        progress = read_progress(event.progress.json)
        for observer in self._observers:
            observer.progressed(progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing came, so nothing changed."""

    def onQueryTerminated(self, event: Any) -> None:
        name = self._names.pop(str(event.runId), "")
        for observer in self._observers:
            observer.ended(name, event.exception)


class Metrics:
    """For Prometheus. A query is called `pipeline/sink`; labels are as many as pipelines have sinks and topics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ("pipeline", "query")
        self._rows_in = Counter("goqueue_pipeline_rows_read", "Rows that came in.", names, registry=registry)
        self._rows_out = Counter("goqueue_pipeline_rows_written", "Rows written.", names, registry=registry)
        self._seconds = Histogram(
            "goqueue_pipeline_batch_seconds", "Micro-batches.", names, registry=registry, buckets=_DURATIONS_S
        )
        self._batch = Gauge(
            "goqueue_pipeline_batch_last", "Id of the last micro-batch.", names, registry=registry
        )
        self._lag = Gauge(
            "goqueue_pipeline_lag_records", "Not read yet.", (*names, "topic"), registry=registry
        )
        self._failures = Counter(
            "goqueue_pipeline_failures", "Queries that failed.", names, registry=registry
        )

    def started(self, query: str) -> None:
        """From now on the query has a line, of zeroes at first."""
        for metric in (self._rows_in, self._rows_out, self._seconds, self._failures):
            metric.labels(*_labels(query))

    def progressed(self, progress: Progress) -> None:
        labels = _labels(progress.query)
        self._rows_in.labels(*labels).inc(progress.rows_in)
        self._rows_out.labels(*labels).inc(progress.rows_out or 0)
        self._seconds.labels(*labels).observe(progress.duration_ms / 1_000)
        self._batch.labels(*labels).set(progress.batch_id)
        for topic, behind in progress.lag.items():
            self._lag.labels(*labels, topic).set(behind)

    def ended(self, query: str, failure: str | None) -> None:
        if failure is not None:
            self._failures.labels(*_labels(query)).inc()


class GroupCommits(Protocol):
    """What is needed of a cluster."""

    def commit_group(self, group_id: str, offsets: Offsets) -> None: ...

    def close(self) -> None: ...


class GroupOffsets:
    """Publishes how far queries are as offsets of groups, in a thread of its own: only the newest of each query waits."""

    def __init__(
        self, connection: Connection, open_cluster: Callable[[Connection], GroupCommits] | None = None
    ) -> None:
        self._connection = connection
        self._open = open_cluster or _open_cluster
        self._waiting: dict[str, Offsets] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self.failure: str | None = None  # why the last attempt did not succeed
        self._thread = threading.Thread(target=self._publish, name="group-offsets", daemon=True)
        self._thread.start()

    def progressed(self, progress: Progress) -> None:
        if progress.offsets:
            with self._changed:
                self._waiting[group_of(progress.query)] = progress.offsets
                self._changed.notify()

    def ended(self, query: str, failure: str | None) -> None:
        """The last progress came before this."""

    def close(self) -> None:
        """What waits is published first, if the broker takes it in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _publish(self) -> None:
        cluster: GroupCommits | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                waiting, self._waiting = self._waiting, {}
            if not waiting:
                break
            try:
                cluster = cluster or self._open(self._connection)
                for group, offsets in waiting.items():
                    cluster.commit_group(group, offsets)
                self.failure = None
            except (KafkaError, OSError) as error:
                self.failure = str(error)
        if cluster is not None:
            cluster.close()


def group_of(query: str) -> str:
    """The group that shows a query's lag: `orders/minutes` is `orders.minutes`."""
    return query.replace("/", ".")


def _open_cluster(connection: Connection) -> KafkaCluster:
    return connect(connection, timeout_s=min(COMMIT_TIMEOUT_S, connection.timeout_s))


def _positions(offset: object) -> dict[tuple[str, int], int]:
    """Empty where the source is not ours: a rate, or files."""
    if not isinstance(offset, dict):
        return {}
    try:
        return {(place.topic, place.partition): end for place, end in positions(offset).items()}
    except PipelineError:
        return {}


def _labels(query: str) -> tuple[str, str]:
    pipeline, _, name = query.rpartition("/")
    return pipeline, name
