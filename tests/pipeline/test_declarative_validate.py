"""What Spark refuses of a pipeline is told before anything runs: all of it, with lines, and without a broker."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession

from goqueue.pipeline.columns import spark_ddl
from goqueue.pipeline.declarative.avro_values import read_avro_schema, reader_of
from goqueue.pipeline.declarative.loading import load
from goqueue.pipeline.declarative.parsing import dead_letters_of, table_of
from goqueue.pipeline.declarative.problems import PipelineFileError
from goqueue.pipeline.declarative.spec import DeadLetterSpec, SourceSpec
from goqueue.pipeline.declarative.tables import Built, build
from goqueue.pipeline.errors import PipelineError

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
SCHEMA = "id BIGINT NOT NULL, name STRING, at TIMESTAMP"
RAW = spark_ddl(("key", "value", "topic", "partition", "offset", "timestamp", "headers"))
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    ],
}


def _build(spark: SparkSession, folder: Path, text: str, name: str = "x.yaml") -> Built:
    (folder / name).write_text(text)
    return build(spark.newSession(), load(folder / name))


def _problems(spark: SparkSession, folder: Path, text: str, name: str = "x.yaml") -> list[str]:
    with pytest.raises(PipelineFileError) as raised:
        _build(spark, folder, text, name)
    return [line.removeprefix(f"{folder}/") for line in str(raised.value).splitlines()]


def test_examples_are_right_without_a_broker(spark: SparkSession) -> None:
    for name, lake in (("orders.yaml", "data/lake/orders"), ("orders.sql", "data/lake/orders-sql")):
        built = build(spark.newSession(), load(EXAMPLES / name))
        assert [query.sink.topic or query.sink.path for query in built.queries] == [
            "orders.bad",
            "orders-by-minute",
            lake,
        ]
        assert all(query.is_stream for query in built.queries)


def test_every_problem_of_a_file_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "broken_views.py").write_text("def gives_nothing(a): return 5\ndef raises(a): return 1 / 0\n")
    found = _problems(
        spark,
        tmp_path,
        """name: x
sources:
  - {name: a, topic: a, options: {startingOffset: earliest}}
  - {name: b, topic: b, format: json, schema: "id BIGNT"}
  - {name: c, topic: c, format: json, schema: "id BIGINT, at TIMESTAMP"}
  - {name: d, path: nowhere}
views:
  - name: syntax
    sql: |
      SELECT *
      FORM c
  - {name: column, sql: SELECT idd FROM c}
  - {name: uses_broken, sql: SELECT * FROM column}
  - {name: command, sql: DROP TABLE c}
  - {name: late, sql: SELECT * FROM c, watermark: {column: when, delay: 1 minute}}
  - {name: windows, sql: "SELECT window(at, '1 minute') AS w, count(*) AS n FROM c GROUP BY 1"}
sinks:
  - {name: s1, from: windows, topic: t}
  - {name: s2, from: c, topic: t, format: columns}
  - {name: s3, from: c, topic: t, key: idd}
  - {name: s4, from: c, path: p, partition_by: [day]}
  - {name: s5, from: c, topic: t, options: {ack: all}}
  - {name: s6, from: uses_broken, topic: t}
""",
    )
    told = dict(line.split(": ", 2)[1:] for line in found)
    places = {line.split(": ")[1]: line.split(":")[1] for line in found}
    assert "there is no option startingOffset; did you mean startingOffsets" in told["sources[0]"]
    assert "the schema of source b cannot be read" in told["sources[1]"]
    assert "does not exist" in told["sources[3]"]
    assert "(line 2, column 6 of the SQL)" in told["views[0].sql"]
    assert places["views[0].sql"] == "11"
    assert "`idd` cannot be resolved" in told["views[1].sql"]
    assert places["views[1].sql"] == "12"
    assert "Syntax error at or near 'DROP'" in told["views[3].sql"]
    assert "the watermark is on 'when', which is no column; there are id, at" in told["views[4].sql"]
    assert "append" in told["sinks[0]"]
    assert "watermark" in told["sinks[0]"]
    assert "a topic has no place for" in told["sinks[1]"]
    assert "key is 'idd'" in told["sinks[2]"]
    assert "partition_by has 'day'" in told["sinks[3]"]
    assert "there is no option ack; did you mean acks" in told["sinks[4]"]
    assert len(found) == 12


def test_malformed_sql_file_is_told_with_its_own_line_and_column(spark: SparkSession, tmp_path: Path) -> None:
    found = _problems(
        spark,
        tmp_path,
        "CREATE TEMPORARY VIEW a USING goqueue OPTIONS (topic 'a');\n\n"
        "CREATE TEMPORARY VIEW b AS SELECT key\n  FROM a WHERE );\n"
        "INSERT INTO console.x SELECT keyy FROM a;\n",
        "x.sql",
    )
    assert [line.split(":")[:2] for line in found] == [["x.sql", "4"], ["x.sql", "5"]]
    assert "(line 2, column 16 of the SQL)" in found[0]
    assert "column 30 of the SQL" in found[1]


def test_dead_letters_may_go_to_files(spark: SparkSession, tmp_path: Path) -> None:
    text = "name: x\nsources: [{name: a, topic: a, format: json, schema: id INT, bad_rows: {path: bad}}]\n"
    built = _build(spark, tmp_path, text + "sinks: [{name: z, from: a, topic: z, mode: update}]\n")
    letters, sink = built.queries
    assert (letters.name, letters.sink.path, letters.rows.columns) == (
        "a.bad",
        "bad",
        ["key", "value", "headers"],
    )
    assert (sink.name, sink.rows.columns) == ("z", ["value"])


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("no_such_module:f", "module no_such_module cannot be imported"),
        ("views_for_test:gone", "has no function gone; there are gives_five, raises"),
        ("views_for_test:gives_five", "gave int; it must give a DataFrame"),
        ("views_for_test:raises", "ZeroDivisionError"),
        ("views_for_test:reads_other", "it reads 'other', and no source or view has that name"),
    ],
)
def test_python_view_that_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, sentence: str
) -> None:
    (tmp_path / "views_for_test.py").write_text(
        "def gives_five(a): return 5\ndef raises(a): return 1 / 0\ndef reads_other(other): return other\n"
    )
    monkeypatch.delitem(__import__("sys").modules, "views_for_test", raising=False)
    text = f"name: x\nsources: [{{name: a, topic: a}}]\nviews: [{{name: v, python: '{python}'}}]\n"
    found = _problems(spark, tmp_path, text + "sinks: [{name: z, from: v, console: true}]\n")
    assert sentence in "\n".join(found)


def _raw(spark: SparkSession, values: Sequence[bytes | None]) -> object:
    rows = [(b"k", value, "t", 0, offset, None, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RAW)


def test_values_become_columns_and_bad_ones_what_the_source_says(spark: SparkSession) -> None:
    good = b'{"id": 1, "name": "a", "at": "2026-01-01T00:00:00Z", "more": 5}'
    values = [good, b"no json", b'{"id": "x"}', b'{"name": "without id"}', None, b"", b'{"id": 2}']
    raw = _raw(spark, values)
    source = SourceSpec(name="s", topic="t", format="json", schema=SCHEMA, bad_rows=DeadLetterSpec(topic="d"))
    table = table_of(raw, source)  # type: ignore[arg-type]  # a DataFrame
    assert table.columns == [
        "id",
        "name",
        "at",
        "_key",
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_headers",
    ]
    assert [(row.id, row._offset) for row in table.collect()] == [(1, 0), (2, 6)]
    letters = dead_letters_of(raw, source, "g").collect()  # type: ignore[arg-type]  # a DataFrame
    assert [row.value for row in letters] == values[1:6]
    nulls = SourceSpec(name="s", topic="t", format="json", schema=SCHEMA, bad_rows="nulls")
    assert [row.id for row in table_of(raw, nulls).collect()] == [1, None, None, None, None, None, 2]  # type: ignore[arg-type]  # a DataFrame
    text = SourceSpec(name="s", topic="t", format="text")
    assert table_of(raw, text).first()["value"] == good.decode()  # type: ignore[arg-type,index]  # a DataFrame


def test_schema_cannot_hide_what_the_record_has(spark: SparkSession) -> None:
    source = SourceSpec(name="s", topic="t", format="json", schema="_offset INT")
    with pytest.raises(PipelineError, match="_offset, which is a column of the record"):
        table_of(_raw(spark, []), source)  # type: ignore[arg-type]  # a DataFrame


def _avro(**row: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), row)
    return stream.getvalue()


def test_avro_is_read_bare_and_framed(spark: SparkSession) -> None:
    bare = _avro(id=7, price=Decimal("1.25"))
    source = SourceSpec(
        name="s", topic="t", format="avro", schema="id BIGINT NOT NULL, price DECIMAL(8, 2)", bad_rows="nulls"
    )
    raw = _raw(spark, [bare, b"\0\0\0\0\5" + bare, b"\xc3\x01" + bytes(8) + bare, b"\xff\xff"])
    rows = table_of(raw, source, json.dumps(AVRO)).select("id", "price").collect()  # type: ignore[arg-type]  # a DataFrame
    assert [tuple(row) for row in rows] == [(7, Decimal("1.25"))] * 3 + [(None, None)]


def test_avro_that_begins_like_a_frame_is_still_read() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "t", "type": "string"}] * 1})
    read = reader_of(schema)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), {"t": ""})
    assert read(stream.getvalue()) == '{"t": ""}'
    assert read(b"") is None


def test_avro_schema_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        read_avro_schema(str(tmp_path / "gone.avsc"))
    (tmp_path / "x.avsc").write_text('{"type": "nonsense"}')
    with pytest.raises(PipelineError, match="is no Avro schema"):
        read_avro_schema(str(tmp_path / "x.avsc"))
