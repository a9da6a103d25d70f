"""Work in Arrow that Spark only schedules: one task per item, and what comes back is small.

Spark retries what fails, spreads tasks over its executors and runs none twice at the same time unless it speculates; so the
work must not mind being begun twice. No row crosses into the JVM but the results.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.memory import keep_freed_memory

T = TypeVar("T")
R = TypeVar("R")

TASK_COUNT_MAX = 100_000
_RESULT = "result binary"
_BUNDLE_BYTES = 64 * 1024 * 1024
_ITEM_BYTES = 512 * 1024  # what an item without bytes counts


def run_tasks(spark: SparkSession, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What `work` gives for each item, in their order. Both have to be picklable."""
    if not items:
        return []
    if len(items) > TASK_COUNT_MAX:
        raise PipelineError(f"{len(items)} tasks are too many; a job has at most {TASK_COUNT_MAX}")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        for batch in batches:
            results = [(index, work(items[index])) for index in batch.column(0).to_pylist()]
            yield pa.record_batch([pa.array([pickle.dumps(one) for one in results], pa.binary())], ["result"])

    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(run, _RESULT)
    found = dict(pickle.loads(row[0]) for row in frame.collect())  # noqa: S301 - our own workers wrote it
    return [found[index] for index in range(len(items))]


class Runner(Protocol):
    """Whoever runs tasks: Spark, or a test."""

    def __call__(self, work: Callable[[T], R], items: Sequence[T], /) -> list[R]: ...


def runner_on(spark: SparkSession) -> Runner:
    def run(work: Callable[[T], R], items: Sequence[T], /) -> list[R]:
        return run_tasks(spark, work, items)

    return run


def run_bundles(runner: Runner, work: Callable[[T], R], items: Sequence[T], sizes: Sequence[int]) -> list[R]:
    """As a runner does it, small items together in one task: of a broker's partitions most are nearly empty, and a task costs
    more than they do. The largest begin first, so that the last task is a short one."""
    order = sorted(range(len(items)), key=lambda index: -sizes[index])
    bundles: list[list[int]] = []
    left = 0
    for index in order:
        weight = sizes[index] + _ITEM_BYTES
        if weight > left:
            bundles.append([])
            left = _BUNDLE_BYTES
        bundles[-1].append(index)
        left -= weight
    results = runner(partial(_each, work), [[items[index] for index in bundle] for bundle in bundles])
    found = {
        index: result
        for bundle, done in zip(bundles, results, strict=True)
        for index, result in zip(bundle, done, strict=True)
    }
    return [found[index] for index in range(len(items))]


def _each(work: Callable[[T], R], bundle: Sequence[T]) -> list[R]:
    return [work(item) for item in bundle]


def attempt_name() -> str:
    """Tells this attempt of this task from every other one of the application: for names of what it writes."""
    context = TaskContext.get()
    return "driver" if context is None else f"{context.stageId()}-{context.taskAttemptId()}"
