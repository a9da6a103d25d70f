"""What a run would do: its queries, and where each goes on, asked of the checkpoint and of the broker. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from goqueue.client.kafka.errors import KafkaError
from goqueue.client.kafka.offsets import EARLIEST, LATEST
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.declarative.checkpoint import Position, query_folder, read_position
from goqueue.pipeline.declarative.sinks import sink_format
from goqueue.pipeline.declarative.spec import Definition, SinkSpec, SourceSpec
from goqueue.pipeline.declarative.tables import Query, build, topic_options
from goqueue.pipeline.source.network import connect
from goqueue.pipeline.source.options import Mode, source_options
from goqueue.pipeline.span import Place

BROKER_TIMEOUT_S: Final = 5.0


class Stretch(msgspec.Struct, frozen=True):
    """A partition that a query would read: from where, and to where it goes now. None is not known."""

    topic: str
    partition: int
    start: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        return None if self.start is None or self.end is None else max(0, self.end - self.start)


class QueryPlan(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    inputs: list[str]
    output: str
    mode: str
    trigger: str
    columns: str
    checkpoint: str | None
    batch_id: int | None
    note: str | None
    stretches: list[Stretch]


@dataclass(frozen=True, slots=True)
class Ends:
    """What the broker has: where partitions begin and end now. `failure` says why it has not answered."""

    earliest: Mapping[Place, int] = field(default_factory=dict)
    latest: Mapping[Place, int] = field(default_factory=dict)
    failure: str | None = None


def plan(spark: SparkSession, definition: Definition) -> list[QueryPlan]:
    """The queries in the order in which they would start."""
    built = build(spark, definition)
    known: dict[str, Ends] = {}
    return [_plan_of(definition, query, known) for query in built.queries]


def _plan_of(definition: Definition, query: Query, known: dict[str, Ends]) -> QueryPlan:
    folder = query_folder(definition, query.name)
    position = read_position(folder) if query.is_stream else None
    stretches: list[Stretch] = []
    notes = []
    if position is not None and position.is_repeated:
        notes.append(f"batch {position.batch_id} was begun and is repeated")
    for source in query.sources:
        if not source.all_topics:
            continue
        if source.name not in known:
            known[source.name] = ask_broker(definition, source)
        ends = known[source.name]
        notes += [ends.failure] if ends.failure is not None else []
        stretches += stretches_of(source, ends, position if source.is_stream else None)
    return QueryPlan(
        name=query.name,
        kind="stream" if query.is_stream else "batch",
        inputs=[_input(source) for source in query.sources],
        output=_output(query.sink),
        mode=query.sink.mode or ("append" if query.is_stream or query.sink.topic is not None else "complete"),
        trigger=str(query.trigger) if query.is_stream else "-",
        columns=", ".join(
            f"{column.name} {column.dataType.simpleString()}" for column in query.rows.schema.fields
        ),
        checkpoint=str(folder) if query.is_stream else None,
        batch_id=None if position is None else position.batch_id,
        note="; ".join(dict.fromkeys(notes)) or None,
        stretches=stretches,
    )


def stretches_of(source: SourceSpec, ends: Ends, position: Position | None) -> list[Stretch]:
    """From the checkpoint, if there is one; else from where the source begins."""
    places = set(ends.latest)
    if position is not None:
        places |= {place for place in position.offsets if place.topic in source.all_topics}
    return [
        Stretch(place.topic, place.partition, _start(source, ends, position, place), ends.latest.get(place))
        for place in sorted(places)
    ]


def ask_broker(definition: Definition, source: SourceSpec) -> Ends:
    """Bounded in time: a plan is of use without the broker, too."""
    options = source_options(
        topic_options(definition, source), Mode.STREAM if source.is_stream else Mode.BATCH
    )
    connection: Connection | None = options.access.connection
    if connection is None:
        return Ends(failure=f"source {source.name} reads segment files: how far they go is seen when it runs")
    try:
        with connect(connection, timeout_s=BROKER_TIMEOUT_S) as cluster:
            counts = cluster.topics()
            missing = [topic for topic in source.all_topics if topic not in counts]
            if missing:
                return Ends(failure=f"the broker has no topic {', '.join(missing)}")
            places = [Place(topic, number) for topic in source.all_topics for number in range(counts[topic])]
            committed = options.access.committed
            return Ends(_at(cluster.offsets(places, EARLIEST, committed=False)),
                        _at(cluster.offsets(places, LATEST, committed=committed)))  # fmt: skip
    except (KafkaError, OSError) as error:
        return Ends(failure=f"the broker at {connection.bootstrap} does not answer: {error}")


def _at(found: Mapping[tuple[str, int], int]) -> dict[Place, int]:
    return {Place(*place): offset for place, offset in found.items()}


def _start(source: SourceSpec, ends: Ends, position: Position | None, place: Place) -> int | None:
    if position is not None and place in position.offsets:
        return position.offsets[place]
    if position is not None and position.offsets:
        return ends.earliest.get(place)  # a partition that came later is read from its beginning
    match source.options.get("startingOffsets", "earliest"):
        case "earliest":
            return ends.earliest.get(place)
        case "latest":
            return ends.latest.get(place)
        case _:
            return None


def _input(source: SourceSpec) -> str:
    kind = "stream" if source.is_stream else "static"
    what = (
        f"topic {', '.join(source.all_topics)}"
        if source.all_topics
        else f"{source.format or 'parquet'} {source.path}"
    )
    return f"{source.name} ({kind}, {what})"


def _output(sink: SinkSpec) -> str:
    return (
        f"topic {sink.topic}" if sink.topic is not None else f"{sink_format(sink)} {sink.path or ''}".strip()
    )


def lag_of(stretches: Sequence[Stretch]) -> int | None:
    """Of all partitions; None where that of any is not known."""
    lags = [stretch.lag for stretch in stretches]
    return None if None in lags else sum(lag for lag in lags if lag is not None)
