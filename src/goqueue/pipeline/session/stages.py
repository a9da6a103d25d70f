"""A bar for the stages of Spark's jobs, on a terminal. It asks Spark now and then; nothing is slower for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

_PERIOD_S = 0.5


@contextmanager
def stage_bar(session: SparkSession, label: str, *, is_shown: bool) -> Iterator[None]:
    tracker = _tracker(session) if is_shown else None
    if tracker is None:
        yield
        return
    from rich.console import Console  # slow to load, and needed on a terminal only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stopped = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        thread = threading.Thread(target=_watch, args=(tracker, bar, label, stopped), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _watch(tracker: Any, bar: Any, label: str, stopped: threading.Event) -> None:
    task = bar.add_task(label, total=None)
    while not stopped.wait(_PERIOD_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            bar.update(
                task,
                total=sum(stage.numTasks for stage in known),
                completed=sum(stage.numCompletedTasks for stage in known),
                description=f"{label}: {known[0].name.split(' at ')[0]}",
            )


def _tracker(session: SparkSession) -> Any | None:
    """None of a Spark Connect session, which has no context to ask."""
    try:
        return session.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - what it raises depends on the kind of session
        return None
