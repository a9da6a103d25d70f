"""Tasks of the Spark sink, called one by one against a cluster in memory, and the driver's commit of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.support.sink_cluster import FakeCluster

from goqueue.pipeline.sink.identity import BATCH_ID, QUERY_ID, TaskIdentity, batch_of_stream, identify
from goqueue.pipeline.sink.job import commit, write_task
from goqueue.pipeline.sink.messages import TaskWritten
from goqueue.pipeline.sink.options import SinkOptions, sink_options

RUN = "run-1"


class Task:
    """As Spark describes a task to itself."""

    def __init__(
        self, partition: int = 0, attempt: int = 0, query: str | None = "q", batch: int | None = 3
    ) -> None:
        self.partition = partition
        self.attempt = attempt
        self.properties = {QUERY_ID: query, BATCH_ID: None if batch is None else str(batch)}

    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)


def options_of(**options: str) -> SinkOptions:
    return sink_options({"bootstrap.servers": "localhost:1", "topic": "t", **options})


def stream_task(partition: int = 0, attempt: int = 0, *, batch: int = 3, run: str = RUN) -> TaskIdentity:
    task = Task(partition, attempt, batch=batch)
    return identify(task, batch_of_stream(task), run)


def frame(*values: bytes | None, **columns: list[Any]) -> pa.RecordBatch:  # Any: as Arrow takes them
    return pa.record_batch({"value": pa.array(values, pa.binary()), **columns})


def write(
    cluster: FakeCluster, identity: TaskIdentity, *frames: pa.RecordBatch, options: SinkOptions | None = None
) -> TaskWritten:
    names = frames[0].schema.names if frames else ["value"]
    return write_task(lambda: cluster, options or options_of(), names, identity, iter(frames))


def values(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for _, record in cluster.visible(topic)]


def finish(
    cluster: FakeCluster,
    *messages: TaskWritten,
    options: SinkOptions | None = None,
    is_stream: bool = False,
) -> None:
    commit(lambda: cluster, options or options_of(), messages[0].batch, messages, is_stream=is_stream)
