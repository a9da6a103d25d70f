"""Running pipelines on a screen: a table that is kept up to date on a terminal, a line for each batch elsewhere."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from goqueue.pipeline.declarative.state import QueryState, RunState


class Screen:
    """Called from several threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._runs: dict[str, RunState] = {}
        self._told: dict[tuple[str, str], tuple[object, str]] = {}  # by query: its last batch and state
        self._live: Any = None  # Any: rich's, loaded on a terminal only

    def __enter__(self) -> Self:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, text: str) -> None:
        with self._lock:
            if self._live is not None:
                self._live.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=self._stream, flush=True)

    def changed(self, run: RunState, query: str | None) -> None:
        if self._live is not None:
            with self._lock:
                self._runs[run.pipeline] = run
                self._live.update(_table(self._runs))
        elif query is None:
            self.line(f"{run.pipeline}: {run.state}" + (f": {run.reason}" if run.reason else ""))
        else:
            for text in self._news(run.pipeline, query, run.queries[query]):
                self.line(f"{run.pipeline}/{query} {text}")

    def _news(self, pipeline: str, name: str, query: QueryState) -> list[str]:
        """Spark tells of the last batch late, often after the query has ended: both are said, each once."""
        batch = (query.batch_id, query.at)
        with self._lock:
            batch_before, state_before = self._told.get((pipeline, name), ((None, None), "waiting"))
            self._told[pipeline, name] = (batch, query.state)
        is_ended = query.state not in ("waiting", "running")
        return [
            *([batch_line(query)] if batch != batch_before and query.batch_id is not None else []),
            *([query.state] if query.state != state_before and is_ended else []),
        ]


def batch_line(query: QueryState) -> str:
    """What a query did in its last batch."""
    parts = [f"batch {query.batch_id}: {query.rows_in:,} rows in"]
    parts += [f"{query.rows_out:,} out"] if query.rows_out is not None else []
    parts += [f"{query.duration_ms or 0:,} ms"]
    parts += [f"lag {sum(query.lag.values()):,}"] if query.lag else []
    return ", ".join(parts)


def _table(runs: dict[str, RunState]) -> Any:  # Any: rich's
    from rich.table import Table

    table = Table(box=None)
    for heading in ("pipeline", "query", "state"):
        table.add_column(heading)
    for heading in ("batch", "rows in", "rows out", "ms", "lag"):
        table.add_column(heading, justify="right")
    for run in runs.values():
        for name, query in list(run.queries.items()):
            lag = f"{sum(query.lag.values()):,}" if query.lag else "-"
            batch = "-" if query.batch_id is None else str(query.batch_id)
            ms = "-" if query.duration_ms is None else f"{query.duration_ms:,}"
            totals = (f"{query.rows_in_total:,}", f"{query.rows_out_total:,}")
            table.add_row(run.pipeline, name, query.state, batch, *totals, ms, lag)
    return table
