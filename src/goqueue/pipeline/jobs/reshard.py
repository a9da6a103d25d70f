"""Reshard: a topic into another one with another number of partitions. The records of a key stay in order.

All records of a key are in one partition of the old topic. A task reads whole partitions and writes each record where its
key belongs in the new one, in the order of the offsets, so nothing has to be sorted or shuffled. It is a streaming query that
ends when it has caught up: run it again and it goes on, so that producers can be moved over at the end of a short pause.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs.replay import to_write
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.origin import FORMAT, Origin

PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ReshardRequest:
    """`checkpoint` is a folder that knows how far each pair of topics has come."""

    origin: Origin
    topic: str
    to: str
    partitions: int
    checkpoint: str
    step_records: int = 5_000_000  # in one transaction

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise OptionError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {self.partitions}")
        if not self.checkpoint:
            raise OptionError("a reshard needs a folder for its checkpoint; its name is empty")
        if self.topic == self.to:
            raise OptionError(f"{self.topic!r} cannot be resharded into itself; name another topic")


def run(spark: SparkSession, request: ReshardRequest) -> Report:
    before = _prepare_target(request)
    records = request.origin.stream(
        spark,
        [request.topic],
        startingOffsets="earliest",
        columns="key,value,headers,timestamp",
        wholePartitions=True,
        maxOffsetsPerTrigger=request.step_records,
    )
    query = (
        to_write(records, keeps_partitions=False)
        .writeStream.format(FORMAT)
        .options(**request.origin.place())
        .option("topic", request.to)
        .option("checkpointLocation", f"{request.checkpoint.rstrip('/')}/{request.topic}/{request.to}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    count = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    note = f"{request.topic!r} has {before} partitions, {request.to!r} has {request.partitions}"
    return Report("reshard", {"records": count}, notes=[note])


def _prepare_target(request: ReshardRequest) -> int:
    """Makes the new topic, set as the old one is, if it is not there yet. How many partitions the old one has."""
    with request.origin.connect() as cluster:
        topics = cluster.topics()
        if request.topic not in topics:
            raise PipelineError(f"there is no topic {request.topic!r}")
        there = topics.get(request.to)
        if there is None:
            cluster.create_topic(request.to, request.partitions, cluster.topic_overrides(request.topic))
        elif there != request.partitions:
            raise PipelineError(
                f"topic {request.to!r} is there already and has {there} partitions, not {request.partitions}"
            )
        return topics[request.topic]
