"""A pipeline as it is written down: sources, views over them, and sinks.

The YAML file is these structs; the `.sql` form is compiled into them. What the fields say to each other is `checks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from goqueue.pipeline.origin import BOOTSTRAP_DEFAULT

Scalar = str | int | float | bool
TopicFormat = Literal["json", "avro", "text", "binary"]
FileFormat = Literal["parquet", "json", "csv", "orc"]
Mode = Literal["append", "update", "complete"]

TOPIC_FORMATS: Final = ("json", "avro", "text", "binary")
FILE_FORMATS: Final = ("parquet", "json", "csv", "orc")
SINK_TOPIC_FORMATS: Final = ("json", "columns")
BAD_ROWS: Final = ("fail", "nulls")
TRIGGER_DEFAULT: Final = "every 1 second"
FOLDER_DEFAULT: Final = "data/pipelines"

SOURCES_MAX: Final = 100
VIEWS_MAX: Final = 200
SINKS_MAX: Final = 50
TOPICS_MAX: Final = 100
SQL_CHARACTERS_MAX: Final = 100_000

_EVERY = re.compile(r"every\s+(\d{1,9}(?:\.\d{1,3})?\s*[A-Za-z]+)")


class BrokerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where topics are. `options` go to every read and write of a topic: security, mostly."""

    bootstrap: str = BOOTSTRAP_DEFAULT
    options: dict[str, Scalar] = {}


class WatermarkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How late rows may be: state of windows older than that is let go."""

    column: str
    delay: str


class DeadLetterSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where rows go that cannot be parsed."""

    topic: str | None = None
    path: str | None = None


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic or several, or files. Its name is a table to the views."""

    name: str
    topic: str | None = None
    topics: list[str] = []
    path: str | None = None
    stream: bool | None = None  # topics are streams and files are not, unless said
    format: str | None = None
    schema: str | None = None
    avro_schema: str | None = None
    bad_rows: str | DeadLetterSpec = "fail"
    watermark: WatermarkSpec | None = None
    options: dict[str, Scalar] = {}

    @property
    def all_topics(self) -> tuple[str, ...]:
        return (self.topic,) if self.topic is not None else tuple(self.topics)

    @property
    def is_stream(self) -> bool:
        return self.path is None if self.stream is None else self.stream

    @property
    def dead_letters(self) -> DeadLetterSpec | None:
        return self.bad_rows if isinstance(self.bad_rows, DeadLetterSpec) else None


class ViewSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table made of others: by SQL, or by a function of DataFrames."""

    name: str
    sql: str | None = None
    python: str | None = None
    watermark: WatermarkSpec | None = None


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows of a view go. One that depends on a stream is a streaming query with a checkpoint of its own."""

    name: str
    from_: str = msgspec.field(name="from")
    topic: str | None = None
    path: str | None = None
    console: bool = False
    format: str | None = None
    key: str | None = None
    value: str | None = None
    headers: str | None = None
    partition: str | None = None
    priority: str | None = None
    timestamp: str | None = None
    partition_by: list[str] = []
    mode: Mode | None = None
    trigger: str | None = None
    options: dict[str, Scalar] = {}


# What a row of a topic is made of, by expressions over the view's columns.
EXPRESSIONS: Final = ("key", "value", "headers", "partition", "priority", "timestamp")


class PipelineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    broker: BrokerSpec = BrokerSpec()
    checkpoint: str | None = None
    settings: dict[str, Scalar] = {}
    trigger: str = TRIGGER_DEFAULT
    sources: list[SourceSpec]
    views: list[ViewSpec] = []
    sinks: list[SinkSpec]


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a micro-batch begins: as often as this, or until all that is there now has been read."""

    every: str | None = None

    @property
    def is_available_now(self) -> bool:
        return self.every is None

    def __str__(self) -> str:
        return "available_now" if self.every is None else f"every {self.every}"


def read_trigger(text: str) -> Trigger:
    """`once` is taken for what people mean by it: everything that is there, and then the end."""
    if text in ("available_now", "once"):
        return Trigger()
    found = _EVERY.fullmatch(text.strip())
    if found is None:
        raise ValueError("write available_now, or every and a time such as every 10 seconds")
    return Trigger(found[1])


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline with the file that it came from. Relative paths are relative to that file's folder, so that a pipeline is
    the same wherever it is started from."""

    spec: PipelineSpec
    file: Path
    lines: Mapping[str, int]  # of paths in the file, where known
    text_lines: Mapping[str, int] = field(default_factory=dict)  # where texts of several lines begin

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def checkpoint(self) -> Path:
        return self.folder / (self.spec.checkpoint or f"{FOLDER_DEFAULT}/{self.spec.name}")

    def located(self, path: str) -> str:
        """A path as Spark gets it; what has a scheme (s3a://, hdfs://) is left alone."""
        return path if "://" in path else str(self.folder / path)

    def line_of(self, path: str) -> int | None:
        """The line of the path, or of the nearest part that it is in."""
        while path and path not in self.lines:
            path = re.sub(r"(\.?[^.\[\]]+|\[\d+\])$", "", path)
        return self.lines.get(path)

    def trigger_of(self, sink: SinkSpec) -> Trigger:
        return read_trigger(sink.trigger or self.spec.trigger)


def texts(options: Mapping[str, Scalar]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
