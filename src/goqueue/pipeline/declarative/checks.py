"""What the parts of a pipeline say to each other, checked without Spark and without a broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from goqueue.model.duration import parse_duration_ms
from goqueue.model.errors import InvalidName
from goqueue.model.names import check_topic_name
from goqueue.pipeline.declarative import spec
from goqueue.pipeline.declarative.problems import PipelineFileError, Problem, near, shown
from goqueue.pipeline.declarative.spec import (
    Definition,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    ViewSpec,
    read_trigger,
)
from goqueue.pipeline.declarative.sql_text import tables_read

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_PYTHON = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

Inputs = Callable[[ViewSpec], Sequence[str]]


def check(definition: Definition, inputs: Inputs | None = None) -> None:
    """Every problem of the definition in one error. `inputs` says what a view reads, where that is not in its SQL."""
    problems = [
        Problem(problem.path, problem.sentence, definition.line_of(problem.path))
        for problem in problems_of(definition.spec, inputs or sql_inputs)
    ]
    if problems:
        raise PipelineFileError(str(definition.file), problems)


def problems_of(pipeline: PipelineSpec, inputs: Inputs) -> Iterator[Problem]:
    if not _FOLDER.fullmatch(pipeline.name):
        yield Problem("name", f"it is {shown(pipeline.name)}; write up to 64 letters, digits, - and _")
    if pipeline.checkpoint is not None and "://" in pipeline.checkpoint:
        yield Problem(
            "checkpoint",
            f"it is {pipeline.checkpoint!r}; status, stop and the lock need a folder: mount the storage and give its path",
        )
    yield from _counts(pipeline)
    yield from _trigger("trigger", pipeline.trigger)
    for index, source in enumerate(pipeline.sources):
        yield from _source(f"sources[{index}]", source)
    for index, view in enumerate(pipeline.views):
        yield from _view(f"views[{index}]", view)
    for index, sink in enumerate(pipeline.sinks):
        yield from _sink(f"sinks[{index}]", sink)
    yield from _names(pipeline)
    yield from _references(pipeline, inputs)


def sql_inputs(view: ViewSpec) -> Sequence[str]:
    return tables_read(view.sql) if view.sql is not None else ()


def in_order(pipeline: PipelineSpec, inputs: Inputs) -> list[ViewSpec]:
    """Views after those that they read; otherwise as they are written. What goes in a circle is left out."""
    left = {view.name: view for view in pipeline.views}
    done: list[ViewSpec] = []
    while left:
        ready = [view for view in left.values() if not any(name in left for name in inputs(view))]
        if not ready:
            break
        done.append(ready[0])
        del left[ready[0].name]
    return done


def inputs_of(pipeline: PipelineSpec, name: str, inputs: Inputs) -> list[SourceSpec]:
    """The sources that a source or view is made of, in the order of the file."""
    views = {view.name: view for view in pipeline.views}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += inputs(views[current]) if current in views else ()
    return [source for source in pipeline.sources if source.name in found]


def _counts(pipeline: PipelineSpec) -> Iterator[Problem]:
    for name, parts, most in (
        ("sources", pipeline.sources, spec.SOURCES_MAX),
        ("views", pipeline.views, spec.VIEWS_MAX),
        ("sinks", pipeline.sinks, spec.SINKS_MAX),
    ):
        if len(parts) > most:
            yield Problem(name, f"there are {len(parts)}; a pipeline has at most {most}")
        if not parts and name != "views":
            yield Problem(name, "there are none; a pipeline needs at least one")


def _source(path: str, source: SourceSpec) -> Iterator[Problem]:
    ways = [name for name in ("topic", "topics", "path") if getattr(source, name)]
    if len(ways) != 1:
        yield Problem(path, f"{_given(ways)}; a source has one of topic, topics and path")
    if len(source.topics) > spec.TOPICS_MAX:
        yield Problem(
            f"{path}.topics", f"there are {len(source.topics)}; at most {spec.TOPICS_MAX} are read at once"
        )
    if source.path is not None:
        yield from _file_source(path, source)
    else:
        yield from _topic_source(path, source)
    if source.watermark is not None:
        yield from _interval(f"{path}.watermark.delay", source.watermark.delay)


def _file_source(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.format is not None:
        yield from _one_of(f"{path}.format", source.format, spec.FILE_FORMATS)
    if source.is_stream and source.schema is None:
        yield Problem(path, "files that are read as a stream need a schema, such as id BIGINT, at TIMESTAMP")
    if source.avro_schema is not None:
        yield Problem(f"{path}.avro_schema", "it is for topics")
    if source.bad_rows != "fail":
        yield Problem(f"{path}.bad_rows", "it is for topics; Spark's file formats have the option mode")


def _topic_source(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.format is not None:
        yield from _one_of(f"{path}.format", source.format, spec.TOPIC_FORMATS)
    is_parsed = source.format in ("json", "avro")
    if is_parsed and source.schema is None:
        yield Problem(
            path, f"format {source.format} needs a schema, such as id BIGINT NOT NULL, at TIMESTAMP"
        )
    if not is_parsed and source.schema is not None:
        yield Problem(f"{path}.schema", "it is for format json or avro, which is not given")
    if (source.format == "avro") != (source.avro_schema is not None):
        yield Problem(path, "format avro and avro_schema (a file with the writer's schema) go together")
    if source.topic:
        yield from _topic_name(f"{path}.topic", source.topic)
    for index, topic in enumerate(source.topics[: spec.TOPICS_MAX]):
        yield from _topic_name(f"{path}.topics[{index}]", topic)
    letters = source.dead_letters
    if letters is not None and letters.topic is not None:
        yield from _topic_name(f"{path}.bad_rows.topic", letters.topic)
    if letters is None:
        yield from _one_of(
            f"{path}.bad_rows", str(source.bad_rows), (*spec.BAD_ROWS, "a mapping with topic or path")
        )
    elif (letters.topic is None) == (letters.path is None):
        yield Problem(f"{path}.bad_rows", "dead letters go to a topic or to a path; give one of them")
    if not is_parsed and source.bad_rows != "fail":
        yield Problem(f"{path}.bad_rows", "only format json and avro can have bad rows")
    if letters is not None and not source.is_stream:
        yield Problem(f"{path}.bad_rows", "dead letters are for streams; a batch fails or has nulls")


def _view(path: str, view: ViewSpec) -> Iterator[Problem]:
    if (view.sql is None) == (view.python is None):
        yield Problem(path, "a view has one of sql and python")
    if view.sql is not None and len(view.sql) > spec.SQL_CHARACTERS_MAX:
        yield Problem(
            f"{path}.sql", f"it has {len(view.sql)} characters; at most {spec.SQL_CHARACTERS_MAX} are read"
        )
    if view.python is not None and not _PYTHON.fullmatch(view.python):
        yield Problem(f"{path}.python", f"it is {view.python!r}; write module:function")
    if view.watermark is not None:
        yield from _interval(f"{path}.watermark.delay", view.watermark.delay)


def _sink(path: str, sink: SinkSpec) -> Iterator[Problem]:
    ways = [name for name in ("topic", "path", "console") if getattr(sink, name)]
    if len(ways) != 1:
        yield Problem(path, f"{_given(ways)}; a sink has one of topic, path and console")
    if sink.topic:
        yield from _topic_name(f"{path}.topic", sink.topic)
    if sink.trigger is not None:
        yield from _trigger(f"{path}.trigger", sink.trigger)
    if sink.topic is None:
        for name in spec.EXPRESSIONS:
            if getattr(sink, name) is not None:
                yield Problem(f"{path}.{name}", "it is for sinks with a topic")
    if sink.path is None and sink.partition_by:
        yield Problem(f"{path}.partition_by", "it is for sinks with a path")
    if sink.format is not None:
        formats = spec.SINK_TOPIC_FORMATS if sink.topic is not None else spec.FILE_FORMATS
        yield from _one_of(f"{path}.format", sink.format, formats)
        if sink.console:
            yield Problem(f"{path}.format", "the console has none")
    if sink.value is not None and sink.format is not None:
        yield Problem(f"{path}.format", "value says already what is written")
    if sink.topic is not None and sink.mode == "complete":
        yield Problem(f"{path}.mode", "a topic cannot be overwritten: write append or update")
    if sink.path is not None and sink.mode == "update":
        yield Problem(
            f"{path}.mode", "files can only be added: write append, with a watermark where rows are counted"
        )


def _names(pipeline: PipelineSpec) -> Iterator[Problem]:
    tables = [
        *((f"sources[{index}]", source.name) for index, source in enumerate(pipeline.sources)),
        *((f"views[{index}]", view.name) for index, view in enumerate(pipeline.views)),
    ]
    sinks = [(f"sinks[{index}]", sink.name) for index, sink in enumerate(pipeline.sinks)]
    for parts, pattern, words in (
        (tables, _TABLE, "letters, digits and _, not beginning with a digit"),
        (sinks, _FOLDER, "letters, digits, - and _"),
    ):
        seen: dict[str, str] = {}
        for path, name in parts:
            if not pattern.fullmatch(name):
                yield Problem(f"{path}.name", f"it is {shown(name)}; write up to 64 {words}")
            elif name.lower() in seen:
                yield Problem(f"{path}.name", f"{name!r} is the name of {seen[name.lower()]} already")
            seen.setdefault(name.lower(), path)


def _references(pipeline: PipelineSpec, inputs: Inputs) -> Iterator[Problem]:
    known = [source.name for source in pipeline.sources] + [view.name for view in pipeline.views]
    for index, view in enumerate(pipeline.views):
        where = f"views[{index}].{'sql' if view.sql is not None else 'python'}"
        for name in inputs(view):
            if name not in known:
                yield Problem(
                    where, f"it reads {name!r}, and no source or view has that name; {near(name, known)}"
                )
    for index, sink in enumerate(pipeline.sinks):
        if sink.from_ not in known:
            yield Problem(
                f"sinks[{index}].from",
                f"no source or view is called {sink.from_!r}; {near(sink.from_, known)}",
            )
    ordered = {view.name for view in in_order(pipeline, inputs)}
    circle = [view.name for view in pipeline.views if view.name not in ordered]
    if circle:
        yield Problem(
            "views",
            f"{', '.join(circle)} read each other in a circle; a view is made of what comes before it",
        )


def _trigger(path: str, text: str) -> Iterator[Problem]:
    try:
        trigger = read_trigger(text)
    except ValueError as error:
        yield Problem(path, f"it is {shown(text)}; {error}")
        return
    if trigger.every is not None:
        yield from _interval(path, trigger.every)


_UNITS: Mapping[str, str] = {
    name: unit
    for unit, names in {
        "ms": "ms millisecond milliseconds",
        "s": "s sec second seconds",
        "m": "m min minute minutes",
        "h": "h hour hours",
        "d": "d day days",
    }.items()
    for name in names.split()
}
_INTERVAL = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([A-Za-z]+)")


def interval_ms(text: str) -> int:
    """A time as Spark writes it (10 minutes) or as this broker does (10m)."""
    found = _INTERVAL.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("write a time such as 10 seconds, 5 minutes or 1 hour")
    return parse_duration_ms(f"{found[1]}{_UNITS[found[2].lower()]}")


def _interval(path: str, text: str) -> Iterator[Problem]:
    try:
        interval_ms(text)
    except ValueError as error:
        yield Problem(path, f"it is {shown(text)}; {error}")


def _topic_name(path: str, name: str) -> Iterator[Problem]:
    try:
        check_topic_name(name)
    except InvalidName as error:
        yield Problem(path, f"it is {shown(name)}; {error}")


def _one_of(path: str, value: str, allowed: Iterable[str]) -> Iterator[Problem]:
    words = tuple(allowed)
    if value not in words:
        yield Problem(path, f"it is {shown(value)}; it must be {' or '.join(words)}")


def _given(ways: Sequence[str]) -> str:
    return f"{' and '.join(ways)} are given" if ways else "none is given"
