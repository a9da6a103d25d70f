"""A pipeline as DataFrames: sources, then views, then the rows of each sink. Spark analyses everything here, and runs nothing.

`validate`, `plan` and `run` all build the same, so what is validated is what runs. Every problem is kept until the end; what
depends on something broken is not complained of as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from goqueue.pipeline.declarative.checks import Inputs, check, in_order, inputs_of, interval_ms
from goqueue.pipeline.declarative.parsing import dead_letters_of, row_schema, table_of
from goqueue.pipeline.declarative.problems import PipelineFileError, Problem
from goqueue.pipeline.declarative.python_views import Transform, functions_of, inputs_with
from goqueue.pipeline.declarative.sinks import rows_for, writer_options
from goqueue.pipeline.declarative.spec import (
    Definition,
    Scalar,
    SinkSpec,
    SourceSpec,
    Trigger,
    ViewSpec,
    WatermarkSpec,
    texts,
)
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.origin import FORMAT
from goqueue.pipeline.source.options import Mode, source_options
from goqueue.pipeline.spark_errors import SPARK_ERRORS, quiet, told

P = TypeVar("P")
T = TypeVar("T")

DEAD_LETTERS = ".bad"  # behind the name of a source: the query that takes its bad rows away


@dataclass(frozen=True, slots=True)
class Query:
    """One sink with the rows that go to it: a streaming query, or a batch where nothing in it is a stream."""

    name: str
    sink: SinkSpec
    rows: DataFrame
    sources: tuple[SourceSpec, ...]
    trigger: Trigger

    @property
    def is_stream(self) -> bool:
        return self.rows.isStreaming


@dataclass(slots=True)
class _Build:
    spark: SparkSession
    definition: Definition
    functions: Mapping[str, Transform]
    inputs: Inputs
    raw: dict[str, DataFrame] = field(default_factory=dict)
    avro: dict[str, str] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Built:
    """The queries in the order of the file, batches first; what views read; and every table."""

    queries: list[Query]
    inputs: Inputs
    tables: dict[str, DataFrame]


def build(spark: SparkSession, definition: Definition) -> Built:
    """The pipeline as Spark understands it. The session's temporary views become the pipeline's."""
    functions = _functions(definition)
    inputs = inputs_with(functions)
    check(definition, inputs)
    work = _Build(spark, definition, functions, inputs)
    with quiet():
        for index, source in enumerate(definition.spec.sources):
            _attempt(work, f"sources[{index}]", _add_source, source)
        places = {view.name: index for index, view in enumerate(definition.spec.views)}
        for view in in_order(definition.spec, inputs):
            if all(name in work.frames for name in inputs(view)):
                part = "sql" if view.sql is not None else "python"
                _attempt(work, f"views[{places[view.name]}].{part}", _add_view, view)
        queries = [*_dead_letters(work), *_sinks(work)]
    if work.problems:
        raise PipelineFileError(str(definition.file), work.problems)
    return Built(sorted(queries, key=lambda query: query.is_stream), inputs, work.frames)


def topic_options(definition: Definition, source: SourceSpec) -> dict[str, str]:
    """As `format("goqueue")` takes them. A new pipeline begins with what its topics have, not with what comes next."""
    broker = definition.spec.broker
    common = {
        "bootstrap.servers": broker.bootstrap,
        **texts(broker.options),
        "subscribe": ",".join(source.all_topics),
        "startingOffsets": "earliest",
    }
    headers = {"includeHeaders": "true"} if source.dead_letters is not None else {}
    return {**common, **headers, **texts(source.options)}


def _functions(definition: Definition) -> dict[str, Transform]:
    try:
        return functions_of(definition.spec, definition.folder)
    except PipelineError as error:
        path = "views"
        raise PipelineFileError(
            str(definition.file), [Problem(path, str(error), definition.line_of(path))]
        ) from error


def _add_source(work: _Build, source: SourceSpec) -> None:
    definition = work.definition
    if source.path is not None:
        frame = _files(work.spark, definition, source)
    else:
        if source.format in ("json", "avro"):
            row_schema(source)
        if source.avro_schema is not None:
            from goqueue.pipeline.declarative.avro_values import read_avro_schema

            work.avro[source.name] = read_avro_schema(definition.located(source.avro_schema))
        options = topic_options(definition, source)
        source_options(options, Mode.STREAM if source.is_stream else Mode.BATCH)
        reader = work.spark.readStream if source.is_stream else work.spark.read
        work.raw[source.name] = reader.format(FORMAT).options(**options).load()
        frame = table_of(work.raw[source.name], source, work.avro.get(source.name))
    frame = _watermarked(frame, source.watermark)
    frame.createOrReplaceTempView(source.name)
    work.frames[source.name] = frame


def _files(spark: SparkSession, definition: Definition, source: SourceSpec) -> DataFrame:
    reader = spark.readStream if source.is_stream else spark.read
    format_name = source.format or "parquet"
    reader = reader.format(format_name).options(**({"header": "true"} if format_name == "csv" else {}))
    if source.schema is not None:
        reader = reader.schema(row_schema(source))
    return reader.options(**texts(source.options)).load(definition.located(source.path or ""))


def _add_view(work: _Build, view: ViewSpec) -> None:
    """SQL becomes a view of Spark's: a command in its place is a syntax error to Spark, so nothing is run by mistake."""
    if view.sql is not None:
        name = view.name if view.watermark is None else f"__{view.name}"
        work.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS\n{view.sql}")
        frame = work.spark.table(f"`{name}`")
    else:
        function = work.functions[view.name]
        frame = function(**{name: work.frames[name] for name in work.inputs(view)})
        if not isinstance(frame, DataFrame):
            raise PipelineError(f"{view.python} gave {type(frame).__name__}; it must give a DataFrame")
    frame = _watermarked(frame, view.watermark)
    if view.sql is None or view.watermark is not None:
        frame.createOrReplaceTempView(view.name)
    work.frames[view.name] = frame


def _watermarked(frame: DataFrame, watermark: WatermarkSpec | None) -> DataFrame:
    if watermark is None:
        return frame
    if watermark.column not in frame.columns:
        raise PipelineError(
            f"the watermark is on {watermark.column!r}, which is no column; there are {', '.join(frame.columns)}"
        )
    return frame.withWatermark(watermark.column, f"{interval_ms(watermark.delay)} milliseconds")


def _sinks(work: _Build) -> list[Query]:
    found: list[Query] = []
    definition = work.definition
    for index, sink in enumerate(definition.spec.sinks):
        if sink.from_ not in work.frames:
            continue
        query = _attempt(work, f"sinks[{index}]", _query_of, sink)
        found += [query] if query is not None else []
    return found


def _query_of(work: _Build, sink: SinkSpec) -> Query:
    rows = rows_for(work.frames[sink.from_], sink)
    _check_options(work, sink)
    _check_stream(work.spark, rows, sink)
    sources = tuple(inputs_of(work.definition.spec, sink.from_, work.inputs))
    return Query(sink.name, sink, rows, sources, work.definition.trigger_of(sink))


def _check_options(work: _Build, sink: SinkSpec) -> None:
    writer_options(work.definition, sink)


def _dead_letters(work: _Build) -> list[Query]:
    found = []
    pipeline = work.definition.spec
    for index, source in enumerate(pipeline.sources):
        letters = source.dead_letters
        if letters is None or source.name not in work.frames:
            continue
        name = f"{source.name}{DEAD_LETTERS}"
        kind = "columns" if letters.topic is not None else "parquet"
        options: dict[str, Scalar] = {"createTopics": True} if letters.topic is not None else {}
        sink = SinkSpec(
            name=name,
            from_=source.name,
            topic=letters.topic,
            path=letters.path,
            format=kind,
            options=options,
        )
        group = f"{pipeline.name}.{name}"
        rows = dead_letters_of(work.raw[source.name], source, group, work.avro.get(source.name))
        _attempt(work, f"sources[{index}].bad_rows", _check_options, sink)
        found.append(Query(name, sink, rows, (source,), work.definition.trigger_of(sink)))
    return found


def _check_stream(spark: SparkSession, rows: DataFrame, sink: SinkSpec) -> None:
    """What Spark would refuse when the query starts: a window without a watermark in append mode, and its like."""
    jvm = getattr(
        spark, "_jvm", None
    )  # a Spark Connect session has none: the server says it when the query starts
    if jvm is None or not rows.isStreaming:
        return
    catalyst = jvm.org.apache.spark.sql.catalyst.analysis
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, (sink.mode or "append").capitalize())()
    catalyst.UnsupportedOperationChecker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)


def _attempt(work: _Build, path: str, step: Callable[[_Build, P], T], part: P) -> T | None:
    try:
        return step(work, part)
    except PipelineError as error:
        work.problems.append(Problem(path, str(error), work.definition.line_of(path)))
    except SPARK_ERRORS as error:
        work.problems.append(_spark_problem(work.definition, path, error))
    except Exception as error:  # noqa: BLE001 - a view of the user's may raise anything, and py4j its own
        work.problems.append(
            Problem(path, f"{type(error).__name__}: {told(error).sentence}", work.definition.line_of(path))
        )
    return None


def _spark_problem(definition: Definition, path: str, error: Exception) -> Problem:
    """With the line in the file: the statement that Spark saw has one line more than the SQL, before it."""
    found = told(error)
    start = definition.text_lines.get(path)
    if found.line is None or start is None:
        return Problem(path, found.sentence, definition.line_of(path))
    line = max(1, found.line - 1)
    return Problem(
        path, f"{found.sentence} (line {line}, column {found.column} of the SQL)", start + line - 1
    )
