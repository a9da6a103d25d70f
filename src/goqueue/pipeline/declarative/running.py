"""Running pipelines: several in one process, each in a session of its own, until they end, fail or are asked to stop.

A stop lets the micro-batch at hand come to its end for a while. One that is cut off is repeated at the next start: its offsets are in
the checkpoint, and the sink takes a batch once. A query that fails ends everything, so that whoever watches the process
sees it and starts it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession

from goqueue.pipeline.declarative.pipeline_run import OWN_SETTINGS, PipelineRun, RunOptions
from goqueue.pipeline.declarative.spec import Definition, texts
from goqueue.pipeline.declarative.state import RunState
from goqueue.pipeline.errors import PipelineError

POLL_S: Final = 0.25


def run_pipelines(
    spark: SparkSession, definitions: Sequence[Definition], options: RunOptions, stop: threading.Event
) -> list[RunState]:
    """Blocks until all have ended; how each did. PipelineError if one failed."""
    runs = [PipelineRun(spark, definition, options) for definition in definitions]
    try:
        for run in runs:
            run.prepare()
        _check_folders(runs)
        for run in runs:
            run.start()
        while any(not run.is_over for run in runs):
            if stop.is_set():
                _end_all(runs, options.grace_s)
            for run in runs:
                run.poll()
            if any(run.failure is not None for run in runs):
                _end_all(runs, options.grace_s)
            time.sleep(POLL_S)
        failures = [
            f"pipeline {run.definition.spec.name}: {run.failure}" for run in runs if run.failure is not None
        ]
        if failures:
            raise PipelineError("\n".join(failures))
        return [run.state for run in runs]
    finally:
        for run in runs:
            run.close()


def session_settings(definitions: Sequence[Definition]) -> dict[str, str]:
    """What the session begins with, from all files. Settings of SQL may differ: each pipeline sets its own once more."""
    found: dict[str, tuple[str, str]] = {}
    for definition in definitions:
        for name, text in texts(definition.spec.settings).items():
            before, file = found.setdefault(name, (text, str(definition.file)))
            if before != text and not name.startswith(OWN_SETTINGS):
                raise PipelineError(
                    f"{name} is {before} in {file} and {text} in {definition.file}; pipelines of one process share it: "
                    "give one value, or run them apart"
                )
    return {name: text for name, (text, _) in found.items()}


def _check_folders(runs: Sequence[PipelineRun]) -> None:
    """Two streams of files into one folder would leave out each other's batches: Spark remembers their numbers by folder."""
    seen: dict[str, str] = {}
    for run in runs:
        for query, folder in run.folders.items():
            if folder in seen:
                run.failure = (
                    f"{seen[folder]} and {query} write files to {folder}; give each a path of its own"
                )
                raise PipelineError(run.failure)
            seen[folder] = query


def _end_all(runs: Sequence[PipelineRun], grace_s: float) -> None:
    """All get the same time, not one after the other."""
    deadline = time.monotonic() + grace_s
    for run in runs:
        run.ask_to_stop(deadline)
