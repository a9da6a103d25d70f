"""Pipelines as SQL: statements, the tables they read, and what they are compiled to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.pipeline.declarative.loading import load
from goqueue.pipeline.declarative.problems import PipelineFileError
from goqueue.pipeline.declarative.spec import DeadLetterSpec, Definition
from goqueue.pipeline.declarative.sql_file import read_sql
from goqueue.pipeline.declarative.sql_text import line_of, statements, tables_read, tokens

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"


def _read(text: str) -> Definition:
    return read_sql(Path("x.sql"), text, {"HOST": "h"})


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a", ["a"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN `c d` USING (x)", ["a", "b", "c d"]),
        ("SELECT x, y FROM a, b WHERE x IN (SELECT y FROM c)", ["a", "b", "c"]),
        ("WITH t AS (SELECT * FROM a), u (x, y) AS (SELECT * FROM t) SELECT * FROM u JOIN b", ["a", "b"]),
        ("SELECT * FROM (SELECT * FROM a) AS b", ["a"]),
        ("SELECT * FROM (a JOIN b ON a.x = b.x)", ["a", "b"]),
        ("SELECT * FROM range(10)", []),
        ("SELECT * FROM parquet.`folder/x` UNION SELECT * FROM db.t", []),
        ("SELECT 'x FROM b' AS t -- FROM c\n/* FROM d */ FROM a", ["a"]),
        ("SELECT extract(DAY FROM at) FROM a WHERE x IS DISTINCT FROM y", ["at", "a"]),
        (
            "SELECT * FROM a WATERMARK at DELAY OF INTERVAL 2 MINUTES GROUP BY window(at, '1 minute'), b",
            ["a"],
        ),
        ("SELECT * FROM STREAM(a) JOIN STREAM b", ["a", "b"]),
        ("SELECT f(x, y), z FROM a ORDER BY x, y", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(x) t AS y", ["a"]),
        ("FROM a SELECT x", ["a"]),
    ],
)
def test_tables_that_a_query_reads_are_found(sql: str, tables: list[str]) -> None:
    assert tables_read(sql) == tables


def test_statements_end_at_semicolons_that_are_not_text() -> None:
    text = "SET a = 1;\n-- not; this\nSELECT ';', `;` /* ; */;;\n SELECT 2"
    found = list(statements(text))
    assert [one.text for one in found] == ["SET a = 1", "SELECT ';', `;`", "SELECT 2"]
    assert [line_of(text, one.start) for one in found] == [1, 3, 4]


@given(st.text(max_size=80))
def test_any_text_is_split_into_tokens_that_lie_in_it(text: str) -> None:
    assert all(text[token.start : token.start + len(token.text)] == token.text for token in tokens(text))
    tables_read(text)
    assert all(one.text in text for one in statements(text))


def test_example_is_the_same_pipeline_as_in_yaml() -> None:
    sql, yaml = load(EXAMPLES / "orders.sql").spec, load(EXAMPLES / "orders.yaml").spec
    assert [(source.name, source.schema, source.all_topics, source.path) for source in sql.sources] == [
        (source.name, source.schema, source.all_topics, source.path) for source in yaml.sources
    ]
    assert sql.sources[0].dead_letters == DeadLetterSpec(topic="orders.bad")
    minutes, lake = sql.sinks
    assert (minutes.topic, minutes.key, minutes.options) == (
        "orders-by-minute",
        "country",
        {"createTopics": "true"},
    )
    assert (lake.name, lake.path, lake.format, lake.partition_by) == (
        "lake",
        "data/lake/orders-sql",
        "parquet",
        ["day"],
    )
    assert sql.trigger == yaml.trigger


def test_settings_are_the_pipelines_the_brokers_or_sparks() -> None:
    text = """SET pipeline.name = 'x'; SET pipeline.checkpoint = some/folder; SET broker.bootstrap = ${HOST}:1;
    SET broker.security.protocol = SSL; SET spark.sql.shuffle.partitions = 3;
    CREATE OR REPLACE TEMP VIEW a USING goqueue OPTIONS (topics 'a, b', stream false, startingOffsets = 'latest');
    INSERT INTO TABLE console.out SELECT * FROM a"""
    spec = _read(text).spec
    assert (spec.name, spec.checkpoint, spec.broker.bootstrap) == ("x", "some/folder", "h:1")
    assert (spec.broker.options, spec.settings) == (
        {"security.protocol": "SSL"},
        {"spark.sql.shuffle.partitions": "3"},
    )
    (source,) = spec.sources
    assert (source.topics, source.stream, source.options) == (
        ["a", "b"],
        False,
        {"startingOffsets": "latest"},
    )
    (sink,) = spec.sinks
    assert (sink.name, sink.console, sink.from_) == ("out", True, "into_out")


def test_name_is_the_files_unless_it_is_set() -> None:
    assert (
        _read(
            "CREATE TEMP VIEW a USING goqueue OPTIONS (topic 'a'); INSERT INTO console.b SELECT 1"
        ).spec.name
        == "x"
    )


def test_text_of_views_keeps_its_column_so_that_positions_are_the_files() -> None:
    text = "\n  CREATE TEMPORARY VIEW v AS SELECT 1,\n  2;"
    definition = _read(text)
    (view,) = definition.spec.views
    assert view.sql is not None
    assert view.sql.splitlines()[0].index("SELECT") == text.splitlines()[1].index("SELECT")
    assert definition.text_lines["views[0].sql"] == 2


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DROP TABLE x", "a statement begins with 'DROP'; write SET, CREATE TEMPORARY VIEW, INSERT INTO"),
        ("CREATE TABLE x AS SELECT 1", "only views are created here"),
        ("CREATE TEMPORARY VIEW v SELECT 1", "write AS SELECT ... or USING"),
        (
            "CREATE TEMPORARY VIEW v USING kafka OPTIONS (topic 'a')",
            "USING 'kafka'; there are goqueue, parquet",
        ),
        ("CREATE TEMPORARY VIEW v USING goqueue", "has no options"),
        ("CREATE TEMPORARY VIEW v USING goqueue OPTIONS (topic)", "an option is a name and a value"),
        ("CREATE TEMPORARY VIEW v USING goqueue OPTIONS (topic 'a', topic 'b')", "stands there twice"),
        ("CREATE TEMPORARY VIEW v (id INT USING goqueue OPTIONS (topic 'a'", "a parenthesis is not closed"),
        ("CREATE TEMPORARY VIEW v () USING goqueue OPTIONS (topic 'a')", "the list of columns is empty"),
        ("INSERT INTO orders SELECT 1", "INTO topic.name"),
        ("INSERT INTO topik.orders SELECT 1", "there is no sink 'topik'; did you mean topic?"),
        ("INSERT INTO topic.orders WITH (key = 'a')", "there is no query"),
        ("SET pipeline.nam = x", "did you mean pipeline.name or"),
        ("SET nonsense", "write SET name = value"),
    ],
)
def test_statement_that_is_none_is_refused_with_its_line(statement: str, sentence: str) -> None:
    with pytest.raises(PipelineFileError) as raised:
        _read(f"SET spark.x = 1;\n\n{statement};\n")
    assert sentence in str(raised.value)
    assert str(raised.value).startswith("x.sql:3: ")
