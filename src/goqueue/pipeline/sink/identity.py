"""Who writes: the batch that a task's rows belong to, and the name of the task attempt in it.

A micro-batch is known by the id of its query, which lives in the checkpoint, and its own number: the same after any
restart. Which rows its tasks have may differ from one run to the next, so a task is never recognised, only its batch.
A batch write is known by a name made up for it, or by the one that its author gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.options import SinkOptions
from goqueue.pipeline.sink.ports import Batch

# Spark sets these for the tasks of a micro-batch; they are part of its source and not of its documentation.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"  # of a stream's tasks: this run of the query, until it is started again
ONLY_BATCH: Final = 2**63 - 1  # none can follow it, so the broker remembers it for a day and not for months
_TURNS: Final = 2**31


class Task(Protocol):
    """What `pyspark.TaskContext` tells a task about itself."""

    def partitionId(self) -> int: ...

    def taskAttemptId(self) -> int: ...

    def getLocalProperty(self, key: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """`whole` is committed by the driver, `own` by the task, where each has a transaction of its own."""

    whole: Batch
    own: Batch
    name: str
    first: int  # where rows without keys begin


def batch_of_write(options: SinkOptions, run_id: str) -> Batch:
    """A name counts for each `topic` by itself: whoever writes one batch to two topics gives both writes the same name."""
    if options.app_id is not None:
        target = (
            "" if options.topic is None else f"/{blake2b(options.topic.encode(), digest_size=8).hexdigest()}"
        )
        return Batch(f"spark-app-{options.app_id}{target}", options.app_version)
    return Batch(f"spark-batch-{run_id}", ONLY_BATCH)


def batch_of_stream(task: Task) -> Batch:
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise PipelineError(
            f"this Spark does not tell its tasks which query ({QUERY_ID} is {query_id}) and micro-batch ({BATCH_ID} is "
            f"{batch_id}) they belong to, so nothing can be written exactly once; write from foreachBatch with "
            "txnAppId and txnVersion"
        )
    return Batch(f"spark-stream-{query_id}", int(batch_id))


def run_of_stream(task: Task, made_up: str) -> str:
    """Spark makes a writer for every micro-batch. With a name for each of those the broker would have to remember a joint for
    every task of every batch; with the run's it has one for every task."""
    run_id = task.getLocalProperty(RUN_ID)
    return made_up if run_id is None or run_id == task.getLocalProperty(QUERY_ID) else run_id


def identify(task: Task, whole: Batch, run_id: str) -> TaskIdentity:
    """A task's own transactions are known by the run as well: after a restart its rows may be others."""
    index = task.partitionId()
    own = Batch(f"spark-task-{run_id}-{index}", whole.batch_id)
    return TaskIdentity(whole, own, f"{index}-{task.taskAttemptId()}", index + whole.batch_id % _TURNS)
