"""How the parts of a pipeline fit together, told without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.pipeline.declarative.checks import check, in_order, inputs_of, interval_ms, sql_inputs
from goqueue.pipeline.declarative.document import read_yaml
from goqueue.pipeline.declarative.loading import load
from goqueue.pipeline.declarative.problems import PipelineFileError
from goqueue.pipeline.declarative.spec import Definition

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"


def _definition(sources: str = "[{name: a, topic: a}]", views: str = "[]", sinks: str = "[{name: z, from: a, topic: z}]",
                more: str = "") -> Definition:  # fmt: skip
    text = f"name: p\nsources: {sources}\nviews: {views}\nsinks: {sinks}\n{more}"
    return read_yaml(Path("x.yaml"), text, {})


def _problems(definition: Definition) -> str:
    with pytest.raises(PipelineFileError) as raised:
        check(definition)
    return str(raised.value)


def test_examples_are_right() -> None:
    for name in ("orders.yaml", "orders.sql"):
        check(load(EXAMPLES / name))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{name: a}", "none is given; a source has one of topic, topics and path"),
        ("{name: a, topic: a, path: b}", "topic and path are given"),
        ("{name: a, topic: a, format: xml}", "'xml'; it must be json or avro or text or binary"),
        ("{name: a, topic: a, format: json}", "format json needs a schema"),
        ("{name: a, topic: a, schema: id INT}", "it is for format json or avro"),
        ("{name: a, topic: a, format: avro, schema: id INT}", "avro_schema"),
        (
            "{name: a, topic: a, format: json, schema: id INT, bad_rows: skip}",
            "'skip'; it must be fail or nulls",
        ),
        ("{name: a, topic: a, format: json, schema: id INT, bad_rows: {}}", "to a topic or to a path"),
        ("{name: a, topic: a, bad_rows: nulls}", "only format json and avro can have bad rows"),
        (
            "{name: a, topic: a, format: json, schema: i INT, stream: false, bad_rows: {topic: b}}",
            "are for streams",
        ),
        ("{name: a, path: b, stream: true}", "need a schema"),
        ("{name: a, path: b, format: xls}", "parquet or json or csv or orc"),
        ("{name: a, path: b, bad_rows: nulls}", "it is for topics"),
        (
            "{name: a, topic: a, watermark: {column: at, delay: soon}}",
            "'soon'; write a time such as 10 seconds",
        ),
        ("{name: 1a, topic: a}", "not beginning with a digit"),
    ],
)
def test_source_that_cannot_be_is_refused(source: str, sentence: str) -> None:
    assert sentence in _problems(_definition(sources=f"[{source}]"))


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        ("{name: z, from: a}", "a sink has one of topic, path and console"),
        ("{name: z, from: a, topic: z, console: true}", "topic and console are given"),
        ("{name: z, from: b, topic: z}", "no source or view is called 'b'"),
        ("{name: z, from: a, path: z, key: id}", "it is for sinks with a topic"),
        ("{name: z, from: a, topic: z, partition_by: [day]}", "it is for sinks with a path"),
        ("{name: z, from: a, topic: z, format: parquet}", "json or columns"),
        ("{name: z, from: a, topic: z, format: json, value: id}", "value says already"),
        ("{name: z, from: a, topic: z, mode: complete}", "a topic cannot be overwritten"),
        ("{name: z, from: a, path: z, mode: update}", "files can only be added"),
        ("{name: z, from: a, console: true, format: json}", "the console has none"),
        ("{name: z, from: a, topic: z, trigger: now and then}", "write available_now, or every"),
        ("{name: z, from: a, topic: z, trigger: every 5 parsecs}", "'5 parsecs'; write a time"),
        ("{name: ../z, from: a, topic: z}", "write up to 64 letters, digits, - and _"),
    ],
)
def test_sink_that_cannot_be_is_refused(sink: str, sentence: str) -> None:
    assert sentence in _problems(_definition(sinks=f"[{sink}]"))


def test_names_are_given_once() -> None:
    found = _problems(_definition(views="[{name: A, sql: SELECT 1}]"))
    assert "views[0].name: 'A' is the name of sources[0] already" in found


def test_names_that_nothing_has_are_told_with_what_may_be_meant() -> None:
    definition = _definition(
        "[{name: orders, topic: o}]",
        "[{name: v, sql: SELECT * FROM ordrs}]",
        "[{name: z, from: w, topic: z}]",
    )
    found = _problems(definition)
    assert (
        "x.yaml:3: views[0].sql: it reads 'ordrs', and no source or view has that name; did you mean orders?"
        in found
    )
    assert "sinks[0].from: no source or view is called 'w'; there are orders, v" in found


def test_circles_are_found() -> None:
    views = (
        "[{name: b, sql: SELECT * FROM c}, {name: c, sql: SELECT * FROM b}, {name: d, sql: SELECT * FROM a}]"
    )
    assert "b, c read each other in a circle" in _problems(_definition(views=views))


def test_views_come_after_what_they_read_whatever_the_file_says() -> None:
    views = "[{name: c, sql: SELECT * FROM b}, {name: b, sql: SELECT * FROM a}]"
    pipeline = _definition(views=views).spec
    assert [view.name for view in in_order(pipeline, sql_inputs)] == ["b", "c"]
    assert [source.name for source in inputs_of(pipeline, "c", sql_inputs)] == ["a"]


def test_everything_has_a_limit() -> None:
    many = ", ".join(f"{{name: z{number}, from: a, topic: z}}" for number in range(51))
    assert "there are 51; a pipeline has at most 50" in _problems(_definition(sinks=f"[{many}]"))
    long = f"SELECT '{'x' * 100_000}'"
    assert "at most 100000" in _problems(_definition(views=f'[{{name: v, sql: "{long}"}}]'))
    assert "there are none" in _problems(_definition(sinks="[]"))


def test_view_is_sql_or_python() -> None:
    assert "one of sql and python" in _problems(_definition(views="[{name: v}]"))
    assert "write module:function" in _problems(_definition(views="[{name: v, python: nonsense}]"))


def test_checkpoint_is_a_folder() -> None:
    assert "mount the storage" in _problems(_definition(more="checkpoint: s3a://b/c\n"))


def test_times_are_written_as_spark_or_as_the_broker_writes_them() -> None:
    assert [interval_ms(text) for text in ("10 seconds", "5m", "1 HOUR", "1.5 s")] == [
        10_000,
        300_000,
        3_600_000,
        1_500,
    ]
    with pytest.raises(ValueError, match="10 seconds"):
        interval_ms("10")


def test_topic_that_no_topic_can_be_called_is_said_where_it_stands() -> None:
    found = _problems(
        _definition(
            "[{name: a, topic: 'a,b'}, {name: c, topics: [c, d e]},"
            " {name: f, topic: f, format: json, schema: x INT, bad_rows: {topic: ''}}]",
            sinks="[{name: z, from: a, topic: z/z}]",
        )
    )
    for path, name in (
        ("sources[0].topic", "'a,b'"),
        ("sources[1].topics[1]", "'d e'"),
        ("sources[2].bad_rows.topic", "''"),
        ("sinks[0].topic", "'z/z'"),
    ):
        assert f"{path}: it is {name}; " in found
