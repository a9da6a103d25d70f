"""What runs share, and how it looks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from goqueue.cli.commands.pipeline.showing import Screen, batch_line
from goqueue.pipeline.declarative.document import read_yaml
from goqueue.pipeline.declarative.running import session_settings
from goqueue.pipeline.declarative.spec import Definition
from goqueue.pipeline.declarative.state import QueryState, RunState
from goqueue.pipeline.errors import PipelineError


def _definition(file: str, **settings: str) -> Definition:
    lines = "".join(f"  {name.replace('_', '.')}: '{value}'\n" for name, value in settings.items())
    text = "name: x\nsources: [{name: a, topic: a}]\nsinks: [{name: b, from: a, console: true}]\nsettings:\n"
    return read_yaml(Path(file), text + lines, {})


def _run(**queries: QueryState) -> RunState:
    now = "2026-01-01T00:00:00.000Z"
    return RunState(
        pipeline="p",
        run_id="1",
        pid=1,
        host="h",
        started_at=now,
        updated_at=now,
        state="running",
        queries=queries,
    )


def test_settings_of_the_process_must_agree_and_those_of_sql_need_not() -> None:
    one = _definition("a.yaml", spark_driver_memory="1g", spark_sql_shuffle_partitions="2")
    other = _definition("b.yaml", spark_driver_memory="1g", spark_sql_shuffle_partitions="4")
    assert session_settings([one, other])["spark.driver.memory"] == "1g"
    with pytest.raises(PipelineError, match=r"is 1g in a\.yaml and 2g in c\.yaml"):
        session_settings([one, _definition("c.yaml", spark_driver_memory="2g")])


def test_batch_is_one_line() -> None:
    query = QueryState(
        kind="stream",
        state="running",
        batch_id=3,
        rows_in=1_000,
        rows_out=12,
        duration_ms=530,
        lag={"a": 2, "b": 3},
    )
    assert batch_line(query) == "batch 3: 1,000 rows in, 12 out, 530 ms, lag 5"


def test_screen_without_a_terminal_has_a_line_for_each_batch_and_each_change() -> None:
    stream = io.StringIO()
    run = _run(q=QueryState(kind="stream", state="running"))
    with Screen(stream) as screen:
        screen.changed(run, None)
        screen.changed(run, "q")
        run.queries["q"].batch_id = 0
        screen.changed(run, "q")
        run.queries["q"].state = "finished"
        screen.changed(run, "q")
        run.queries["q"].batch_id, run.queries["q"].rows_in = 1, 5  # Spark told of it after the end
        screen.changed(run, "q")
        screen.changed(run, "q")
        run.state, run.reason = "failed", "it broke"
        screen.changed(run, None)
    assert stream.getvalue().splitlines() == [
        "p: running",
        "p/q batch 0: 0 rows in, 0 ms",
        "p/q finished",
        "p/q batch 1: 5 rows in, 0 ms",
        "p: failed: it broke",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_screen_on_a_terminal_is_a_table() -> None:
    stream = Terminal()
    query = QueryState(kind="stream", state="running", batch_id=7, rows_in_total=1_234, lag={"t": 5})
    with Screen(stream) as screen:
        screen.line("metrics at [somewhere]")
        screen.changed(_run(q=query), "q")
    shown = stream.getvalue()
    assert "metrics at [somewhere]" in shown
    assert all(text in shown for text in ("pipeline", "rows in", "1,234", "running"))
