"""The Spark session of the pipeline's lines: started when the first line needs it, with the connector if it can be had.

Processor time is that of the JVM and of all Python processes below it: on a busy machine it holds still where the clock does
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from bench.line import require
from bench.peers.peer import PeerAbsent
from bench.peers.spark_connector import NAME as CONNECTOR
from bench.peers.spark_connector import connector_jars
from bench.spark_null import NullSource
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.session.session import SessionOptions, start_session

CORES = 2  # what the goals are for, however many the machine has
_TICKS_PER_S = 100  # of /proc
_UTIME = 11  # the first of four times in /proc/PID/stat, counted behind the name
_COUNT_TIMEOUT_S = 20.0
_POLL_S = 0.01
_WRITE, _ROWS = "OverwriteByExpression", "number of output rows"


@dataclass(frozen=True, slots=True)
class Pass:
    """Some rows, once through Spark."""

    rows: int
    row_bytes: int
    seconds: float
    cpu_s: float
    server_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def rate_per_core(self) -> float:
        return self.rate / CORES

    @property
    def mb_per_s_per_core(self) -> float:
        return self.rate_per_core * self.row_bytes / 1e6

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.rows * 1e6

    @property
    def server_cpu_s_per_million(self) -> float:
        return self.server_cpu_s / self.rows * 1e6


class SparkBench:
    def __init__(self) -> None:
        self.absent: dict[str, str] = {}  # peer to reason
        self._jars: list[Path] | None = None
        self._session: SparkSession | None = None
        self._cores = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def has_spark(self) -> bool:
        """Whether there is a Java that fits; the report says so if not."""
        if "spark" not in self.absent and self._session is None:
            try:
                self.session()
            except PipelineError as error:
                self.absent["spark"] = str(error)
        return self._session is not None

    @property
    def has_connector(self) -> bool:
        return bool(self._jars)

    def session(self, cores: int = CORES) -> SparkSession:
        """The one that there is, unless it has another number of cores. The JVM stays the same."""
        if self._session is not None and self._cores == cores:
            return self._session
        self._stop()
        settings = {"spark.jars": ",".join(map(str, self._found_jars()))} if self._found_jars() else {}
        self._session = start_session(SessionOptions("bench", f"local[{cores}]", settings=settings))
        self._cores = cores
        self._session.dataSource.register(NullSource)
        return self._session

    def cpu_s(self) -> float:
        jvm: Any = self.session(self._cores)._jvm  # whatever Java has
        return tree_cpu_s(jvm.java.lang.ProcessHandle.current().pid())

    def to_nowhere(self, frame: DataFrame, rows: int, row_bytes: int) -> Pass:
        """Every row and every column of a frame, into Spark's own sink that drops them."""
        counter = _Counter(frame.sparkSession)
        found = self.timed(lambda: frame.write.format("noop").mode("overwrite").save(), rows, row_bytes)
        written = counter.rows()
        require(written == rows, f"Spark was to read {rows} rows and has read {written}")
        return found

    def timed(
        self, work: Callable[[], object], rows: int, row_bytes: int, server: Callable[[], float] = lambda: 0.0
    ) -> Pass:
        """`server` is the processor time of whoever else works for it."""
        cpu_s, server_s, begun = self.cpu_s(), server(), time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        return Pass(rows, row_bytes, seconds, self.cpu_s() - cpu_s, server() - server_s)

    def _found_jars(self) -> list[Path]:
        if self._jars is None:
            try:
                self._jars = connector_jars()
            except PeerAbsent as absent:
                self._jars = []
                self.absent[CONNECTOR] = str(absent)
        return self._jars

    def _stop(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None


class _Counter:
    """How many rows a write had, by what Spark itself counts. It says so a moment after the write's end."""

    def __init__(self, session: SparkSession) -> None:
        inner: Any = session._jsparkSession  # what is behind it has no Python
        self._store = inner.sharedState().statusStore()
        self._known = self._store.executionsCount()

    def rows(self) -> int:
        """Of the write since this was made."""
        deadline = time.monotonic() + _COUNT_TIMEOUT_S
        while (found := self._find()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found or 0

    def _find(self) -> int | None:
        """Sources may have executions of their own beside it."""
        executions = self._store.executionsList()
        for at in range(self._known, executions.size()):
            one = executions.apply(at)
            if one.completionTime().nonEmpty() and (found := self._rows_of(one.executionId())) is not None:
                return found
        return None

    def _rows_of(self, number: int) -> int | None:
        nodes, values = self._store.planGraph(number).allNodes(), self._store.executionMetrics(number)
        for at in range(nodes.size()):
            metrics = nodes.apply(at).metrics()
            for index in range(metrics.size() if nodes.apply(at).name().startswith(_WRITE) else 0):
                metric = metrics.apply(index)
                if metric.name() == _ROWS and values.contains(metric.accumulatorId()):
                    return int(values.apply(metric.accumulatorId()).replace(",", ""))
        return None


def tree_cpu_s(pid: int) -> float:
    """Of a process, of all below it, and of those that have ended below them."""
    parents: dict[int, int] = {}
    times: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parts = fields.split()
        number = int(path.parent.name)
        parents[number] = int(parts[1])
        times[number] = sum(map(int, parts[_UTIME : _UTIME + 4]))
    return sum(spent for number, spent in times.items() if _is_below(number, pid, parents)) / _TICKS_PER_S


def _is_below(number: int, pid: int, parents: dict[int, int]) -> bool:
    while number not in (0, pid):
        number = parents.get(number, 0)
    return number == pid
