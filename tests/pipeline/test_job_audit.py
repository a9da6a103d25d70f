"""Audit: counts and samples on tiny frames, and every record of real topics, their files and their archive."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.support.broker import Broker, clean_environment, command_line

from goqueue.client.rest import RestClient
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs import archive
from goqueue.pipeline.jobs import audit as job
from goqueue.pipeline.jobs.audit.findings import BREAK, COUNT, VIOLATION
from goqueue.pipeline.jobs.selection import Selection
from goqueue.pipeline.origin import Origin

DOCS = Path(__file__).parents[2] / "docs" / "pipeline"
ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
STRICTER = {**ORDER, "required": ["id", "item"]}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
DDL = "topic string, partition int, offset bigint, key binary, value binary"


def _schema(document: object, name: str = "order.json") -> job.Schema:
    return job.Schema(job.SchemaKind.JSON, json.dumps(document), name)


def _file(folder: Path, name: str, document: object) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def _produce(broker: Broker, topic: str, values: list[bytes | None]) -> None:
    """Value i has offset i of partition 0."""
    with RestClient(broker.url) as client:
        client.create_topic(topic, partition_count=2)
    producer = Producer({"bootstrap.servers": broker.kafka})
    for index, value in enumerate(values):
        producer.produce(topic, value, key=f"k{index}", partition=0)
    assert producer.flush(30) == 0


VALUES: list[bytes | None] = [
    b'{"id": 1, "item": "tea"}',
    b'{"id": 2}',
    b'{"id": "three"}',
    b"{broken",
    None,
    b'\x00\x00\x00\x00\x07{"id": 6, "item": "nut"}',
]


# -------------------------------------------------------------------- tiny frames


def test_each_record_is_counted_once_and_wrong_ones_are_shown(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [("t", 0, offset, b"k", value) for offset, value in enumerate(VALUES)], DDL
    )
    found = job.tally(job.find(records, _schema(ORDER), samples_max=5), samples_max=5).collect()
    counts = {(row.topic, row.partition, row.verdict): row["count"] for row in found if row.kind == COUNT}
    assert counts == {
        ("t", 0, "valid"): 3,
        ("t", 0, "invalid"): 1,
        ("t", 0, "unparsable"): 1,
        ("t", 0, "tombstone"): 1,
    }
    shown = {row.verdict: [tuple(one) for one in row.samples] for row in found if row.kind == VIOLATION}
    assert shown["invalid"] == [(2, b"k", "/id", '"three" is not of type "integer"')]
    assert [one[0] for one in shown["unparsable"]] == [3]


def test_what_the_new_schema_would_break_is_counted_apart(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [("t", 0, offset, None, value) for offset, value in enumerate(VALUES)], DDL
    )
    findings = job.find(records, _schema(ORDER), _schema(STRICTER), samples_max=5)
    found = job.tally(findings, samples_max=5).collect()
    breaks = [(row.verdict, row.new_verdict, row["count"]) for row in found if row.kind == COUNT]
    assert ("valid", "invalid", 1) in breaks
    [broken] = [row for row in found if row.kind == BREAK]
    assert [(one.offset, one.message) for one in broken.samples] == [(1, '"item" is a required property')]


def test_samples_are_the_first_few_of_each_partition(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [("t", offset % 2, offset, None, b"{}") for offset in range(40)], DDL
    ).repartition(4)
    found = job.tally(job.find(records, _schema(ORDER), samples_max=3), samples_max=3).collect()
    shown = {row.partition: [one.offset for one in row.samples] for row in found if row.kind == VIOLATION}
    assert shown == {0: [0, 2, 4], 1: [1, 3, 5]}


# -------------------------------------------------------------------- whole topics


def test_topic_of_a_broker_is_audited(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _produce(shared_broker, topic, VALUES)
    request = job.AuditRequest(
        Selection(Origin(bootstrap=shared_broker.kafka), [topic]),
        job.FileSchema(_file(tmp_path, "order.json", ORDER)),
        job.FileSchema(_file(tmp_path, "stricter.json", STRICTER)),
    )
    report = job.run(spark, request)
    assert report.counts == {
        "records": 6,
        "valid": 3,
        "invalid": 1,
        "unparsable": 1,
        "tombstone": 1,
        "breaks": 1,
        "mends": 0,
    }
    assert report.is_failure
    assert "2 of 5 values do not fit" in report.notes[0]
    assert "1 of 5 values fit" in report.notes[1]
    lines = {row[2:6]: row[6:] for row in report.rows}
    assert lines["invalid", None, 2, "k2"] == ("/id", '"three" is not of type "integer"')
    assert lines["breaks", None, 1, "k1"] == ("", '"item" is a required property')
    assert ("unparsable", None, 3, "k3") in lines
    assert (topic, 0, "valid", 3, None, None, None, None) in report.rows


def test_topic_whose_records_fit_is_no_failure(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _produce(shared_broker, topic, [b'{"id": 1}', None])
    request = job.AuditRequest(
        Selection(Origin(bootstrap=shared_broker.kafka), [topic]),
        job.FileSchema(_file(tmp_path, "order.json", ORDER)),
    )
    report = job.run(spark, request)
    assert (report.counts["valid"], report.counts["tombstone"], report.is_failure) == (1, 1, False)
    assert report.notes == []


def test_avro_topic_is_audited_in_any_frame(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"id": 300})
    whole = io.BytesIO()
    fastavro.schemaless_writer(whole, AVRO, {"id": 5})
    bare = out.getvalue()
    _produce(shared_broker, topic, [bare, b"\x00\x00\x00\x00\x01" + bare, whole.getvalue() + b"!!"])
    report = job.run(
        spark,
        job.AuditRequest(
            Selection(Origin(bootstrap=shared_broker.kafka), [topic]),
            job.FileSchema(_file(tmp_path, "order.avsc", AVRO)),
        ),
    )
    assert (report.counts["valid"], report.counts["invalid"]) == (2, 1)


def test_archive_and_offsets_and_times_choose_what_is_audited(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _produce(shared_broker, topic, VALUES)
    origin = Origin(bootstrap=shared_broker.kafka)
    lake = str(tmp_path / "lake")
    archive.run(spark, archive.ArchiveRequest(origin, [topic], lake))
    schema = job.FileSchema(_file(tmp_path, "order.json", ORDER))

    def records(selection: Selection) -> Any:
        return job.run(spark, job.AuditRequest(selection, schema)).counts["records"]

    starting = json.dumps({topic: {"0": 4, "1": -2}})
    some = Origin(bootstrap=shared_broker.kafka, options={"startingOffsets": starting})
    assert records(Selection(origin, [topic], lake)) == 6
    assert records(Selection(some, [topic])) == 2
    assert records(Selection(origin, [topic], time_max_ms=1_000)) == 0
    assert records(Selection(origin, [topic], time_min_ms=1_000)) == 6


# -------------------------------------------------------------------- refusals


def test_topic_that_does_not_exist_is_named_before_work_begins(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    request = job.AuditRequest(
        Selection(Origin(bootstrap=shared_broker.kafka), ["nowhere"]),
        job.FileSchema(_file(tmp_path, "order.json", ORDER)),
    )
    with pytest.raises(PipelineError, match="there is no topic 'nowhere'; there are"):
        job.run(spark, request)


def test_number_of_samples_has_a_limit(tmp_path: Path) -> None:
    selection = Selection(Origin(), ["t"])
    with pytest.raises(OptionError, match="samples is 1001; it must be 0 to 1000"):
        job.AuditRequest(selection, job.FileSchema("s.json"), samples=1_001)
    with pytest.raises(OptionError, match="the first must be less"):
        Selection(Origin(), ["t"], time_min_ms=5, time_max_ms=5)
    with pytest.raises(OptionError, match="name at least one topic"):
        Selection(Origin(), [])


@pytest.mark.parametrize("page", ["audit", "usage", "traces"])
def test_snippet_of_the_page_runs(
    spark: SparkSession,
    shared_broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    _produce(shared_broker, topic, [b'{"id": 1}'])
    _file(tmp_path, "order.json", ORDER)
    _file(tmp_path, "order-v2.json", STRICTER)
    event = {"trace_id": "a", "name": "consume.fetched", "time_unix_nano": 1}
    (tmp_path / "traces").mkdir()
    _file(tmp_path / "traces", "t.jsonl", event)
    monkeypatch.chdir(tmp_path)
    [snippet] = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    for there, here in (
        ("127.0.0.1:9092", shared_broker.kafka),
        ("http://127.0.0.1:8080", shared_broker.url),
        ('"acme.orders"', f'"{topic}"'),
        ('"orders"', f'"{topic}"'),
        ("/reports", str(tmp_path / "reports")),
        ('"traces/"', f'"{tmp_path / "traces"}"'),
    ):
        snippet = snippet.replace(there, here)
    names: dict[str, Any] = {"spark": spark}
    exec(snippet, names)  # noqa: S102 - what our own page shows
    if page == "audit":
        assert (names["report"].counts["valid"], names["report"].counts["breaks"]) == (1, 1)
    elif page == "usage":
        assert names["report"].counts["messages"] == 1
    else:
        assert names["events"].count() == 1


def _command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("pipeline", *args), capture_output=True, text=True, timeout=280, env=clean_environment()
    )


def test_command_ends_with_one_and_a_sentence_where_records_do_not_fit(
    shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    _produce(shared_broker, topic, VALUES)
    schema = _file(tmp_path, "order.json", ORDER)
    done = _command(
        "audit",
        topic,
        "--schema",
        schema,
        "--bootstrap",
        shared_broker.kafka,
        "--master",
        "local[1]",
        "-o",
        "json",
    )
    assert done.returncode == 1, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["records"], shown["valid"], shown["invalid"]) == (6, 3, 1)
    assert f"error: audit: 2 of 5 values do not fit {schema!r}" in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: no such file or directory"),
        ('{"type": 7}', "is no JSON Schema: 7 is not valid"),
    ],
)
def test_command_refuses_a_wrong_schema_with_one_sentence(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "order.json"
    if content is not None:
        path.write_text(content)
    done = _command("audit", "t", "--schema", str(path))
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
