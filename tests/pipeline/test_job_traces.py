"""Traces: what exported events and traced records say about latency, on tiny frames and against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession
from tests.support.broker import Broker
from typer.testing import CliRunner

from goqueue.cli.commands.pipeline import app
from goqueue.cli.commands.pipeline import traces as command
from goqueue.client.rest import RestClient
from goqueue.model.duration import format_instant
from goqueue.pipeline.columns import spark_ddl
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs import traces as job
from goqueue.pipeline.jobs.selection import Selection
from goqueue.pipeline.jobs.traces.topics import INPUT_COLUMNS
from goqueue.pipeline.origin import Origin

MS = 1_000_000
MINUTE = 60_000 * MS
START = 1_700_000_040_000 * MS  # the beginning of a minute
Headers = list[tuple[str, str | bytes | None]]
TRACE = "4bf92f3577b34da6a3ce929d0e0e473{}"


def _event(
    name: str, at_ms: float, trace: str = "a", group: str | None = None, offset: int | None = 0, **more: Any
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "trace_id": trace,
        "span_id": f"span-{trace}",
        "name": name,
        "topic": "orders",
        "time_unix_nano": START + int(at_ms * MS),
    }
    if offset is not None:
        line |= {"partition": 0, "offset": offset}
    if group is not None:
        line["attributes"] = {"messaging.consumer.group.name": group}
    return line | more


def _write(path: Path, lines: Iterable[object]) -> str:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return str(path)


def _placed(spark: SparkSession, path: Path, lines: Iterable[object]) -> DataFrame:
    return job.placed(job.events_of(job.read_lines(spark, [_write(path, lines)])))


def _rows(frame: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.collect()}


def _life(trace: str, *, fetched: float, acked: float, group: str = "g") -> list[dict[str, Any]]:
    return [
        _event("publish.received", 0, trace, offset=None),
        _event("publish.persisted", 2, trace),
        _event("consume.fetched", fetched, trace, group),
        _event("consume.acked", acked, trace, group),
    ]


# -------------------------------------------------------------------- lines


def test_bad_lines_are_counted_and_the_others_read(spark: SparkSession, tmp_path: Path) -> None:
    good = _event("publish.received", 0)
    lines = [good, "{broken", "{}", '"text"', {**good, "time_unix_nano": "soon"}, {**good, "extra": [1]}]
    read = job.read_lines(spark, [_write(tmp_path / "t.jsonl", lines)])
    assert job.line_counts(read) == (6, 4)
    assert job.events_of(read).count() == 2


def test_flat_and_otlp_lines_give_the_same_events(spark: SparkSession, tmp_path: Path) -> None:
    attributes = [
        {"key": "messaging.destination.name", "value": {"stringValue": "orders"}},
        {"key": "messaging.destination.partition.id", "value": {"stringValue": "0"}},
        {"key": "messaging.kafka.offset", "value": {"intValue": "7"}},
    ]
    group = [{"key": "messaging.consumer.group.name", "value": {"stringValue": "g"}}]
    span = {
        "traceId": "A",
        "spanId": "span-a",
        "name": "publish.persisted",
        "startTimeUnixNano": str(START),
        "attributes": attributes,
        "events": [
            {"timeUnixNano": str(START + MS), "name": "consume.acked", "attributes": group},
            {"timeUnixNano": str(START), "name": "something else"},
        ],
    }
    export = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    flat = [_event("publish.persisted", 0, offset=7), _event("consume.acked", 1, group="g", offset=7)]
    found = [
        _rows(job.events_of(job.read_lines(spark, [_write(tmp_path / name, lines)])))
        for name, lines in (("otlp.jsonl", [export]), ("flat.jsonl", flat))
    ]
    assert found[0] == found[1]
    assert found[0] == {
        ("a", "span-a", "publish.persisted", "orders", 0, 7, None, START),
        ("a", "span-a", "consume.acked", "orders", 0, 7, "g", START + MS),
    }


def test_files_that_are_not_there_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"'.*none\.jsonl' cannot be read: Path does not exist"):
        job.run(spark, job.TracesRequest([str(tmp_path / "none.jsonl")]))


def test_request_without_anything_to_look_at_is_refused() -> None:
    with pytest.raises(OptionError, match="name files of exported traces, or topics"):
        job.TracesRequest()


# -------------------------------------------------------------------- hops


def test_hops_are_between_events_that_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    events = _placed(spark, tmp_path / "t.jsonl", _life("a", fetched=10, acked=15))
    found = {(row["from"], row.to, row.ns, row.topic, row.group) for row in job.hops(events).collect()}
    assert found == {
        ("publish.received", "publish.persisted", 2 * MS, "orders", None),
        ("publish.persisted", "consume.fetched", 8 * MS, "orders", "g"),
        ("consume.fetched", "consume.acked", 5 * MS, "orders", "g"),
    }


def test_groups_go_ways_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        _event("publish.persisted", 0),
        _event("consume.fetched", 1, group="g"),
        _event("consume.fetched", 2, group="h"),
        _event("consume.acked", 4, group="h"),
        _event("consume.acked", 5, group="g"),
    ]
    events = _placed(spark, tmp_path / "t.jsonl", lines)
    found = {(row.group, row["from"], row.to, row.ns) for row in job.hops(events).collect()}
    assert found == {
        ("g", "publish.persisted", "consume.fetched", 1 * MS),
        ("g", "consume.fetched", "consume.acked", 4 * MS),
        ("h", "publish.persisted", "consume.fetched", 2 * MS),
        ("h", "consume.fetched", "consume.acked", 2 * MS),
    }


def test_messages_of_one_trace_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        _event("publish.received", 0, span_id="one", offset=None),
        _event("publish.received", 1, span_id="two", offset=None),
        _event("publish.persisted", 3, span_id="one", offset=5),
        _event("publish.persisted", 5, span_id="two", offset=6),
    ]
    events = _placed(spark, tmp_path / "t.jsonl", lines)
    assert sorted(row.ns for row in job.hops(events).collect()) == [3 * MS, 4 * MS]


def test_events_of_one_nanosecond_keep_the_order_of_a_life(spark: SparkSession, tmp_path: Path) -> None:
    lines = [_event(name, 0) for name in ("publish.persisted", "publish.partitioned", "publish.received")]
    events = _placed(spark, tmp_path / "t.jsonl", lines)
    assert {(row["from"], row.to) for row in job.hops(events).collect()} == {
        ("publish.received", "publish.partitioned"),
        ("publish.partitioned", "publish.persisted"),
    }


def test_journey_is_from_received_to_the_last_ack_of_a_group(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        *_life("a", fetched=10, acked=15),
        _event("consume.fetched", 20, "a", "h"),
        _event("consume.nacked", 21, "a", "h"),
        _event("consume.fetched", 30, "a", "h"),
        _event("consume.acked", 31, "a", "h"),
        _event("publish.received", 0, "b", offset=None),  # never stored, never read
        _event("consume.fetched", 3, "c", "g"),  # not acknowledged
    ]
    trips = job.journeys(_placed(spark, tmp_path / "t.jsonl", lines)).collect()
    assert {(row.trace_id, row.group, row.offset, row.deliveries, row.ns) for row in trips} == {
        ("a", "g", 0, 1, 15 * MS),
        ("a", "h", 0, 2, 31 * MS),
    }


def test_percentiles_are_those_of_the_values(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("t", ms * MS) for ms in range(1, 101)], "topic string, ns bigint")
    assert job.latencies(frame, "topic").collect() == [
        Row(topic="t", count=100, p50_ms=50.0, p95_ms=95.0, p99_ms=99.0, max_ms=100.0)
    ]


# -------------------------------------------------------------------- storms


def test_storm_is_a_run_of_minutes_with_messages_that_are_tried_too_often(
    spark: SparkSession, tmp_path: Path
) -> None:
    minute_ms = 60_000
    lines = [
        *(_event("consume.fetched", at, "a", "g") for at in (0, 1, 2, minute_ms, minute_ms + 1)),
        *(_event("consume.fetched", at, "b", "g") for at in (5, 6, minute_ms + 2, 10 * minute_ms)),
        *(_event("consume.fetched", at, "calm", "g") for at in (0, 1, 2)),
    ]
    found = job.storms(_placed(spark, tmp_path / "t.jsonl", lines), deliveries_max=3)
    assert _rows(found) == {
        ("orders", START, 2, 2, 8, 5),
        ("orders", START + 10 * MINUTE, 1, 1, 1, 1),
    }


def test_report_of_exported_traces_has_each_kind_of_finding(spark: SparkSession, tmp_path: Path) -> None:
    lines: list[object] = ["no json"]
    for index in range(4):
        lines += _life(f"t{index}", fetched=10, acked=20 + index)
    lines += [_event("consume.fetched", 30 + at, "t0", "g") for at in range(4)]
    path = _write(tmp_path / "t.jsonl", lines)
    report = job.run(spark, job.TracesRequest([path], slow=1))
    assert report.counts == {"lines": 21, "bad_lines": 1, "events": 20, "traces": 4, "storms": 1}
    assert report.notes == ["1 of 21 lines are no trace and were passed over"]
    assert (
        "hop", "orders", "publish.received > publish.persisted", 4, 2.0, 2.0, 2.0, 2.0, None,
    ) in report.rows  # fmt: skip
    assert ("end to end", "orders", None, 4, 21.0, 23.0, 23.0, 23.0, None) in report.rows
    slow = [row for row in report.rows if row[0] == "slow"]
    assert slow == [("slow", "orders", "t3", 1, None, None, None, 23.0, "partition 0 offset 0 group g")]
    storms = [row for row in report.rows if row[0] == "storm"]
    assert storms == [
        (
            "storm", "orders", "2023-11-14T22:14:00.000Z to 2023-11-14T22:15:00.000Z", 5, None, None, None, None,
            "1 messages, 5 deliveries in the worst minute",
        )
    ]  # fmt: skip
    assert not report.is_failure


# -------------------------------------------------------------------- topics


def _record(topic: str, ms: int, trace: str | None, headers: list[tuple[str, bytes]] | None = None) -> Any:
    traceparent = None if trace is None else f"00-{trace}-00f067aa0ba902b7-01"
    when = datetime.fromtimestamp(1_700_000_000 + ms / 1_000, UTC)
    return (None, b"v", topic, 0, ms, when, headers, traceparent)


def test_trace_is_followed_from_topic_to_topic(spark: SparkSession) -> None:
    one, two = TRACE.format(1), TRACE.format(2)
    records = spark.createDataFrame(
        [
            _record("orders", 0, one),
            _record("priced", 30, one),
            _record("shipped", 100, one),
            _record("orders", 5, two),
            _record("orders", 6, None),
            _record("orders", 7, "0" * 32),
            _record("orders", 8, "nonsense"),
        ],
        spark_ddl(INPUT_COLUMNS),
    )
    known = job.traced(records)
    assert known.count() == 4
    assert _rows(job.topic_hops(known)) == {
        (one, "orders", "priced", 30 * MS),
        (one, "priced", "shipped", 70 * MS),
    }
    assert _rows(job.topic_journeys(known)) == {(one, "orders", "shipped", 3, 100 * MS)}


def test_dead_letters_tell_how_long_they_took_to_die(spark: SparkSession) -> None:
    headers = [
        ("gq-dlq-topic", b"orders"),
        ("gq-dlq-attempts", b"4"),
        ("gq-dlq-first-delivery", b"2023-11-14T22:13:20.000Z"),
        ("gq-dlq-reason", b"rejected"),
    ]
    records = spark.createDataFrame(
        [_record("orders.dlq", 250, None, headers), _record("orders", 1, None, [])],
        spark_ddl(INPUT_COLUMNS),
    )
    assert _rows(job.deaths(records)) == {("orders", "rejected", 4, 250 * MS)}


def test_topics_of_a_broker_are_joined_by_trace(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    origin = Origin(bootstrap=shared_broker.kafka)
    first, second, dead = topic, f"{topic}-out", f"{topic}.dlq"
    with RestClient(shared_broker.url) as client:
        for name in (first, second, dead):
            client.create_topic(name, partition_count=2)
    producer = Producer({"bootstrap.servers": shared_broker.kafka})
    base_ms = int(time.time() * 1_000) - 60_000
    for index in range(10):
        header: Headers = [("traceparent", f"00-{index + 1:032x}-00f067aa0ba902b7-01".encode())]
        producer.produce(first, b"v", partition=index % 2, timestamp=base_ms, headers=header)
        producer.produce(second, b"v", partition=0, timestamp=base_ms + 10 * (index + 1), headers=header)
    letter: Headers = [
        ("gq-dlq-topic", first.encode()),
        ("gq-dlq-attempts", b"3"),
        ("gq-dlq-first-delivery", format_instant(base_ms).encode()),
        ("gq-dlq-reason", b"retries exhausted"),
    ]
    producer.produce(dead, b"v", partition=0, timestamp=base_ms + 500, headers=letter)
    assert producer.flush(30) == 0
    report = job.run(spark, job.TracesRequest(records=Selection(origin, [first, second, dead]), slow=2))
    assert report.counts == {"traced_records": 20, "traced_in_topics": 10, "dead_letters": 1}
    assert ("topic hop", second, f"{first} > {second}", 10, 50.0, 100.0, 100.0, 100.0, None) in report.rows
    assert ("topics", second, f"{first} to {second}", 10, 50.0, 100.0, 100.0, 100.0, None) in report.rows
    assert [row[2] for row in report.rows if row[0] == "slow trace"] == [f"{10:032x}", f"{9:032x}"]
    dead_rows = [row for row in report.rows if row[0] == "dead"]
    assert dead_rows == [
        (
            "dead",
            first,
            "retries exhausted",
            1,
            500.0,
            500.0,
            500.0,
            500.0,
            "attempts 3.0 on average, 3 at most",
        )
    ]


def test_command_shows_what_was_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "spark_session", lambda *_: nullcontext(spark))
    path = _write(tmp_path / "t.jsonl", _life("a", fetched=10, acked=15))
    done = CliRunner().invoke(app, ["traces", path, "--slow", "1", "-o", "json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["lines"], shown["events"], len(shown["rows"])) == (4, 4, 5)
    assert isinstance(CliRunner().invoke(app, ["traces"]).exception, OptionError)


def test_topic_that_does_not_exist_is_named(spark: SparkSession, shared_broker: Broker) -> None:
    selection = Selection(Origin(bootstrap=shared_broker.kafka), ["nowhere"])
    with pytest.raises(PipelineError, match="there is no topic 'nowhere'; there are"):
        job.run(spark, job.TracesRequest(records=selection))
