"""One pipeline while it runs: its queries, its state files, and what its queries tell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from goqueue.pipeline.connection import CONNECTION_OPTIONS, Connection
from goqueue.pipeline.declarative.checkpoint import check_folder, check_unchanged, query_folder, shape_of
from goqueue.pipeline.declarative.checks import interval_ms
from goqueue.pipeline.declarative.sinks import activate, counted, stream_writer, write_batch
from goqueue.pipeline.declarative.spec import Definition, Trigger, texts
from goqueue.pipeline.declarative.state import Claim, QueryState, RunState
from goqueue.pipeline.declarative.tables import Query, build
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.listening import GroupOffsets, Listener, Metrics, Progress
from goqueue.pipeline.options import parse_options
from goqueue.pipeline.spark_errors import SPARK_ERRORS, root_cause, told

OWN_SETTINGS: Final = "spark.sql."  # those that each pipeline of a process has for itself
GRACE_S: Final = 10.0
RESTARTS_MAX: Final = 5  # of one query in one run, where only the machine was too busy
LISTEN_TIMEOUT_S: Final = 5.0  # Spark tells of the last batch after the query has ended
_FIRST_OFFSETS_S_MAX: Final = 30.0
_LOOK_S: Final = 0.05
_LATE_WORKER: Final = "Python worker failed to connect back"
_GONE: Final = (*SPARK_ERRORS, OSError)  # what a session raises whose Java is on its way out


OnChange = Callable[[RunState, str | None], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`on_change` gets the state of a run whenever it changed, with the query that did."""

    is_available_now: bool = False
    grace_s: float = GRACE_S
    metrics: Metrics | None = None
    metrics_address: str | None = None
    on_change: OnChange = lambda _run, _query: None


class PipelineRun:
    def __init__(self, spark: SparkSession, definition: Definition, options: RunOptions) -> None:
        self.definition = definition
        self.failure: str | None = None
        self._options = options
        self._spark = spark.newSession()
        self._claim: Claim | None = None
        self._groups: GroupOffsets | None = None
        self._listener: Listener | None = None
        self._queries: list[Query] = []
        self._started: dict[str, Any] = {}  # Any: StreamingQuery, of either kind of session
        self._to_start: list[Query] = []
        self._settled_by = 0.0
        self._restart_at: dict[str, float] = {}
        self._batches: Future[None] | None = None
        self._stop_at: float | None = None
        self._lock = threading.Lock()  # Spark's listener has a thread of its own
        self._told: set[str] = set()  # queries whose end the listener has seen

    @property
    def state(self) -> RunState:
        if self._claim is None:
            raise PipelineError(f"pipeline {self.definition.spec.name} was not started")
        return self._claim.run

    @property
    def is_over(self) -> bool:
        return self._claim is not None and self.state.is_over

    @property
    def folders(self) -> dict[str, str]:
        """Where its streams write files, by query."""
        return {
            self._name(query): os.path.realpath(path) if "://" not in path else path
            for query in self._queries
            if query.is_stream and query.sink.path is not None
            for path in [self.definition.located(query.sink.path)]
        }

    def prepare(self) -> None:
        """Everything that can be refused is refused here, before any pipeline of the process has begun."""
        name = self.definition.spec.name
        self._claim = Claim(self.definition.checkpoint, name)
        self.state.metrics = self._options.metrics_address
        try:
            self._set_settings()
            built = build(self._spark, self.definition)
            self._queries = built.queries
            shapes = {
                query.name: shape_of(self.definition, query.sink, query.sources, built.inputs)
                for query in built.queries
                if query.is_stream
            }
            for query in built.queries:
                if query.is_stream:
                    check_folder(self.definition, query.name, query.sink)
            check_unchanged(self.definition, shapes)
        except PipelineError as error:
            self._finish("failed", str(error))
            raise
        self.state.queries = {
            query.name: QueryState(kind="stream" if query.is_stream else "batch") for query in self._queries
        }
        self._claim.save()

    def start(self) -> None:
        """Batches first, since streams may read what they write."""
        self.state.state = "running"
        self._listen()
        batches = [query for query in self._queries if not query.is_stream]
        if batches:
            pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
            self._batches = pool.submit(self._write_batches, batches)
            pool.shutdown(wait=False)
        self._to_start = [query for query in self._queries if query.is_stream]
        self._changed(None)

    def poll(self) -> None:
        """Looks after the queries; called again and again until the run is over."""
        if self._claim is None or self.is_over:
            return
        if self._stop_at is None and self._claim.is_asked_to_stop():
            self.ask_to_stop(time.monotonic() + self._options.grace_s)
        if self._batches is not None and self._batches.done():
            self._end_batches(self._batches)
        try:
            if self._batches is None:
                self._start_next()
            self._look_at_streams()
        except (Py4JError, OSError) as error:
            self._lose_spark(error)
        if self._stop_at is not None:
            self._stop_streams(self._stop_at)
        if self._batches is None and not self._to_start and not self._active():
            self._await_listener()
            state = "failed" if self.failure else "stopped" if self._stop_at is not None else "finished"
            self._finish(state, self.failure)

    def ask_to_stop(self, deadline: float) -> None:
        """Queries end after the batch at hand, or at the deadline."""
        if self._stop_at is None and not self.is_over:
            self._stop_at = deadline
            self.state.state = "stopping"
            self._changed(None)
            if self._batches is not None:
                self._cancel_batches()

    def close(self) -> None:
        """Whatever happened: no query goes on, no lock stays."""
        for query in self._active():
            _quietly(query.stop)
        if self._listener is not None:
            listener = self._listener
            _quietly(lambda: self._spark.streams.removeListener(listener))
        if self._groups is not None:
            self._groups.close()
        if self._claim is not None:
            if not self.is_over:
                self._finish("failed", self.failure or "the process ended before the pipeline did")
            self._claim.release()

    def _set_settings(self) -> None:
        for name, value in texts(self.definition.spec.settings).items():
            if not name.startswith(OWN_SETTINGS) or not self._spark.conf.isModifiable(name):
                continue
            try:
                self._spark.conf.set(name, value)
            except SPARK_ERRORS as error:
                raise PipelineError(f"the setting {name} is {value!r}: {told(error).sentence}") from error

    # ---------------------------------------------------------------- what queries tell

    def progressed(self, progress: Progress) -> None:
        name = progress.query.rpartition("/")[2]
        with self._lock:
            query = self.state.queries[name]
            query.batch_id, query.at = progress.batch_id, progress.at
            query.duration_ms = progress.duration_ms
            query.rows_in, query.rows_out = progress.rows_in, progress.rows_out
            query.rows_in_total += progress.rows_in
            query.rows_out_total += progress.rows_out or 0
            query.lag = {**query.lag, **progress.lag}
            for (topic, partition), end in progress.offsets.items():
                query.offsets.setdefault(topic, {})[str(partition)] = end
        self._changed(name)

    def ended(self, query: str, failure: str | None) -> None:
        self._told.add(query.rpartition("/")[2])

    def _listen(self) -> None:
        broker = self.definition.spec.broker
        given = {"bootstrap.servers": broker.bootstrap, **texts(broker.options)}
        observers: list[Any] = [self]  # Any: Observer; mypy does not see self as one here
        if any(source.all_topics for query in self._queries for source in query.sources):
            self._groups = GroupOffsets(Connection.of(parse_options(given, CONNECTION_OPTIONS)))
            observers.append(self._groups)
        if self._options.metrics is not None:
            for query in self._queries:
                self._options.metrics.started(self._name(query))
            observers.append(self._options.metrics)
        self._listener = Listener(observers)
        self._spark.streams.addListener(self._listener)

    # ---------------------------------------------------------------- streams

    def _start_next(self) -> None:
        """One after the other: each starts Python processes, and Java waits ten seconds for one, however busy the machine."""
        if self._stop_at is not None or self.failure is not None:
            for query in self._to_start:
                self.state.queries[query.name].state = "stopped"
            self._to_start = []
        elif self._to_start and self._is_last_settled():
            query = self._to_start.pop(0)
            self._start_stream(query)
            self._settled_by = time.monotonic() + _FIRST_OFFSETS_S_MAX
            self._changed(query.name)

    def _is_last_settled(self) -> bool:
        """Whether the last stream that was started has its first offsets."""
        last = next(reversed(self._started.values()), None)
        if last is None or time.monotonic() >= self._settled_by or not last.isActive:
            return True
        return not last.status["message"].startswith(("Initializing", "Getting offsets"))

    def _start_stream(self, query: Query) -> None:
        folder = query_folder(self.definition, query.name)
        trigger = Trigger() if self._options.is_available_now else query.trigger
        writer = stream_writer(self.definition, query.sink, counted(query.rows), folder)
        writer = writer.queryName(self._name(query)).option("checkpointLocation", str(folder))
        if trigger.every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval_ms(trigger.every)} milliseconds")
        try:
            self._started[query.name] = writer.start()
        except SPARK_ERRORS as error:
            self.failure = f"query {query.name} cannot be started: {root_cause(str(error))}"
            self.state.queries[query.name].state = "failed"
            return
        self.state.queries[query.name].state = "running"

    def _look_at_streams(self) -> None:
        for name, query in list(self._started.items()):
            state = self.state.queries[name]
            if state.state != "running" or query.isActive or self._is_restarting(name):
                continue
            error = query.exception()
            cause = "" if error is None else root_cause(str(error))
            if error is None or self._stop_at is not None:
                # Ctrl-C reaches Spark's workers as well: what they then fail of is part of the stop.
                state.state = "finished" if self._stop_at is None else "stopped"
            elif _LATE_WORKER in cause and state.restarts < RESTARTS_MAX:
                state.restarts += 1
                self._restart_at[name] = time.monotonic() + 2**state.restarts
            else:
                state.state = "failed"
                self.failure = f"query {name} failed: {cause}"
            self._changed(name)

    def _is_restarting(self, name: str) -> bool:
        """A query that only came too late is started again, each time after twice as long."""
        at = self._restart_at.get(name)
        if at is None or self._stop_at is not None:
            return False
        if time.monotonic() >= at:
            del self._restart_at[name]
            self._start_stream(next(query for query in self._queries if query.name == name))
        return True

    def _lose_spark(self, error: Exception) -> None:
        """Java is gone: it was stopped as well, with everything of its group, or it died."""
        for state in self.state.queries.values():
            if state.state in ("running", "waiting"):
                state.state = "stopped" if self._stop_at is not None else "failed"
        self._to_start = []
        if self._stop_at is None:
            self.failure = f"Spark has ended by itself: {type(error).__name__}"

    def _stop_streams(self, deadline: float) -> None:
        for name, query in self._started.items():
            if self.state.queries[name].state != "running":
                continue
            try:
                if query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                    continue
                query.stop()
            except _GONE:
                pass
            self.state.queries[name].state = "stopped"

    def _active(self) -> list[Any]:  # Any: StreamingQuery
        return [query for name, query in self._started.items() if self.state.queries[name].state == "running"]

    def _await_listener(self) -> None:
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        while not self._told >= set(self._started) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    # ---------------------------------------------------------------- batches

    def _write_batches(self, queries: list[Query]) -> None:
        context = getattr(self._spark, "_sc", None)
        if context is not None:
            context.setJobGroup(self._job_group, self._job_group, interruptOnCancel=True)
            activate(self._spark)
        for query in queries:
            if self._stop_at is not None:
                return
            self.state.queries[query.name].state = "running"
            self._changed(query.name)
            write_batch(self.definition, query.sink, query.rows)
            self.state.queries[query.name].state = "finished"
            self._changed(query.name)

    def _end_batches(self, batches: Future[None]) -> None:
        self._batches = None
        error = batches.exception()
        for state in self.state.queries.values():
            if state.kind == "batch" and state.state in ("running", "waiting"):
                state.state = "stopped" if self._stop_at is not None else "failed"
        if error is not None and self._stop_at is None:
            self.failure = f"a batch failed: {root_cause(str(error))}"

    def _cancel_batches(self) -> None:
        context = getattr(self._spark, "_sc", None)
        if context is not None:
            _quietly(lambda: context.cancelJobGroup(self._job_group))

    @property
    def _job_group(self) -> str:
        return f"goqueue pipeline {self.definition.spec.name}"

    # ---------------------------------------------------------------- state

    def _name(self, query: Query) -> str:
        return f"{self.definition.spec.name}/{query.name}"

    def _changed(self, query: str | None) -> None:
        if self._claim is not None:
            with self._lock:
                self._claim.save()
            self._options.on_change(self.state, query)

    def _finish(self, state: Any, reason: str | None) -> None:  # Any: a Literal of RunState
        self.state.state, self.state.reason = state, reason
        self._changed(None)


def _quietly(action: Callable[[], object]) -> None:
    """At the end, when what is to be ended may have ended by itself."""
    try:
        action()
    except _GONE:
        pass
