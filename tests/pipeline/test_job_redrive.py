"""Redrive: which letters are chosen and how they are asked for on tiny frames; and that each goes once on a real broker."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from tests.support.broker import Broker
from tests.support.rest_queue import Worker, call
from tests.support.spark_cluster import only_in_soak
from typer.testing import CliRunner

from goqueue.cli.commands.pipeline import app
from goqueue.cli.commands.pipeline import redrive as command
from goqueue.client.rest import RestClient
from goqueue.pipeline.columns import spark_ddl
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs import redrive as job
from goqueue.pipeline.jobs.redrive.letters import INPUT_COLUMNS
from goqueue.pipeline.origin import Origin

Headers = list[tuple[str, bytes | None]]
START_S = 1_700_000_000


def _letter(
    topic: str = "orders", partition: int = 0, offset: int = 0, reason: str = "rejected", **more: str
) -> Headers:
    told = {
        "gq-dlq-topic": topic,
        "gq-dlq-partition": str(partition),
        "gq-dlq-offset": str(offset),
        "gq-dlq-reason": reason,
        **{f"gq-dlq-{name.replace('_', '-')}": value for name, value in more.items()},
    }
    return [(name, text.encode()) for name, text in told.items()]


def _row(offset: int, headers: Headers | None, *, died_ms: int = 0, partition: int = 0) -> tuple[Any, ...]:
    when = datetime.fromtimestamp(START_S + died_ms / 1_000, UTC)
    return (b"k", b"v", "orders.dlq", partition, offset, when, headers)


def _letters(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return job.letters(spark.createDataFrame(rows, spark_ddl(INPUT_COLUMNS)))


# -------------------------------------------------------------------- letters


def test_headers_of_a_letter_become_columns(spark: SparkSession) -> None:
    headers = _letter(
        partition=3,
        offset=77,
        timestamp="2026-01-01T00:00:00.000Z",
        attempts="4",
        first_delivery="2026-01-01T00:00:01.000Z",
        group="workers",
        consumer="anna",
        error="no stock",
    )
    [row] = _letters(spark, _row(5, [("own", b"x"), *headers, ("gq-redrive-count", b"2")])).collect()
    told = (row.origin_topic, row.origin_partition, row.origin_offset, row.attempts, row.reason)
    assert told == ("orders", 3, 77, 4, "rejected")
    assert (row.consumer_group, row.consumer, row.error, row.redrive_count) == (
        "workers",
        "anna",
        "no stock",
        2,
    )
    assert (row.key_text, row.value_text, row.is_missing, row.last_delivery) == ("k", "v", False, None)
    assert row.origin_timestamp.astimezone(UTC) == datetime(2026, 1, 1, tzinfo=UTC)


def test_only_the_last_block_of_headers_counts(spark: SparkSession) -> None:
    twice = [*_letter("first", offset=1, attempts="9"), *_letter("second", offset=2)]
    [row] = _letters(spark, _row(0, twice)).collect()
    assert (row.origin_topic, row.origin_offset, row.attempts) == ("second", 2, None)


def test_records_that_are_no_letters_are_left_out_and_bad_ones_have_nulls(spark: SparkSession) -> None:
    broken: Headers = [("gq-dlq-topic", b"t"), ("gq-dlq-offset", b"many"), ("gq-dlq-reason", b"\xff")]
    found = _letters(spark, _row(0, None), _row(1, [("a", b"b")]), _row(2, broken)).collect()
    assert [(row.offset, row.origin_offset, row.reason) for row in found] == [(2, None, None)]


# -------------------------------------------------------------------- choosing


def test_condition_chooses_and_what_it_does_not_know_stays(spark: SparkSession) -> None:
    letters = _letters(
        spark,
        _row(0, _letter(offset=0, error="timeout")),
        _row(1, _letter(offset=1, error="bad")),
        _row(2, _letter(offset=2)),  # without an error the condition is neither true nor false
        _row(3, [*_letter(offset=3, error="timeout"), ("gq-dlq-missing", b"gone")]),  # has no body to send
    )
    marked = job.chosen(letters, "error = 'timeout'")
    found = {(row.offset, row.is_chosen) for row in marked.collect()}
    assert found == {(0, True), (1, False), (2, False), (3, False)}
    assert [tuple(row) for row in job.summary(marked).collect()] == [("orders", "rejected", 4, 1)]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("no_such_column = 1", "no_such_column"),
        ("reason = = 'x'", "Syntax error"),
        ("attempts + 1", "which is neither true nor false of a dead letter but int"),
        ("true) or (true", "Syntax error"),
    ],
)
def test_bad_condition_is_refused_with_one_sentence(spark: SparkSession, where: str, said: str) -> None:
    letters = _letters(spark, _row(0, _letter()))
    with pytest.raises(OptionError, match=said) as error:
        job.chosen(letters, where)
    assert "\n" not in str(error.value)


def test_neighbours_in_time_are_one_run_and_the_others_go_alone(spark: SparkSession) -> None:
    rows = [_row(at, _letter(offset=at, error="yes"), died_ms=at) for at in range(12)]
    rows.append(_row(12, _letter(offset=12, error="no"), died_ms=12))
    rows.append(_row(13, _letter(offset=13, error="yes"), died_ms=12))  # in one moment with another
    rows += [_row(at, _letter(offset=at, error="yes"), died_ms=at) for at in range(14, 18)]  # too few
    marked = job.chosen(_letters(spark, *rows), "error = 'yes'")
    found = job.runs(marked)
    begin = START_S * 1_000
    assert [tuple(row) for row in found.collect()] == [(0, 0, begin, begin + 12, 12)]
    alone = sorted(row.first_offset for row in job.singles(marked, found).collect())
    assert alone == [13, 14, 15, 16, 17]


def test_last_moment_of_a_partition_is_in_no_run(spark: SparkSession) -> None:
    rows = [_row(at, _letter(offset=at), died_ms=at // 2) for at in range(22)]
    marked = job.chosen(_letters(spark, *rows), None)
    found = job.runs(marked)
    assert [row.letters for row in found.collect()] == [20]
    assert sorted(row.first_offset for row in job.singles(marked, found).collect()) == [20, 21]


def test_long_run_is_asked_for_in_parts_that_do_not_overlap(spark: SparkSession) -> None:
    rows = [_row(at, _letter(offset=at), died_ms=at) for at in range(61)]
    marked = job.chosen(_letters(spark, *rows), None)
    found = sorted(tuple(row) for row in job.runs(marked, letters_max=20).collect())
    begin = START_S * 1_000
    assert found == [(0, at, begin + at, begin + at + 20, 20) for at in (0, 20, 40)]


# -------------------------------------------------------------------- a real broker


def _values(broker: Broker, topic: str) -> list[str]:
    with RestClient(broker.url) as client:
        partitions = client.topic(topic).partitions
        read = [
            message
            for partition in range(partitions)
            for message in client.read(topic, partition, limit=1_000).messages
        ]
    return sorted((message.value or b"").decode() for message in read)


def _make_letters(broker: Broker, topic: str, count: int, headers: Headers | None = None) -> None:
    """As the broker writes them, one in each millisecond, over two partitions."""
    with RestClient(broker.url) as client:
        client.create_topic(topic, partition_count=2)
        client.create_topic(f"{topic}.dlq", partition_count=2)
    producer = Producer({"bootstrap.servers": broker.kafka})
    base_ms = int(time.time() * 1_000) - 60_000
    for at in range(count):
        told = _letter(topic, at % 2, at // 2, error="early" if at < count // 2 else "late")
        producer.produce(
            f"{topic}.dlq",
            str(at),
            partition=at % 2,
            timestamp=base_ms + at,
            headers=[*(headers or []), *told],
        )
    assert producer.flush(30) == 0


def _request(broker: Broker, topic: str, **more: Any) -> job.RedriveRequest:
    return job.RedriveRequest(Origin(bootstrap=broker.kafka), broker.url, f"{topic}.dlq", **more)


def test_what_was_chosen_goes_once_however_often_the_job_runs(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    _make_letters(shared_broker, topic, 100)
    first = job.run(spark, _request(shared_broker, topic, where="error = 'early'"))
    assert first.counts == {
        "dead_letters": 100,
        "chosen": 50,
        "moved": 50,
        "pending": 0,
        "parked": 0,
        "failed": 0,
        "gone_before": 0,
        "left_by_limit": 0,
        "requests": 2,
    }
    assert first.rows == [(topic, "rejected", 100, 50)]
    early = sorted(map(str, range(50)))
    assert _values(shared_broker, topic) == early
    again = job.run(spark, _request(shared_broker, topic, where="error = 'early'"))
    assert (again.counts["moved"], again.counts["gone_before"]) == (0, 50)
    rest = job.run(spark, _request(shared_broker, topic))
    assert (rest.counts["moved"], rest.counts["gone_before"]) == (50, 50)
    assert _values(shared_broker, topic) == sorted(map(str, range(100)))


def test_job_that_ended_early_is_finished_by_the_next(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    """It keeps no state of its own: the broker knows what went, also by its own redrive."""
    _make_letters(shared_broker, topic, 60)
    assert call(shared_broker, "POST", f"/topics/{topic}.dlq/redrive", {"limit": 7}).body["moved"] == 7
    dry = job.run(spark, _request(shared_broker, topic, limit=20, dry_run=True))
    assert (dry.counts["moved"], dry.notes) == (20, ["nothing was sent: these are the numbers of a dry run"])
    assert len(_values(shared_broker, topic)) == 7
    some = job.run(spark, _request(shared_broker, topic, limit=20, rate=1_000))
    assert some.counts["moved"] == 20
    assert some.counts["left_by_limit"] + some.counts["gone_before"] == 40
    assert len(_values(shared_broker, topic)) == 27
    rest = job.run(spark, _request(shared_broker, topic, rate=10_000))
    assert rest.counts["moved"] == 33
    assert _values(shared_broker, topic) == sorted(map(str, range(60)))


def test_letter_that_came_back_too_often_stays_unless_forced(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    _make_letters(shared_broker, topic, 4, [("gq-redrive-count", b"5"), ("own", b"kept")])
    other = f"{topic}-other"
    with RestClient(shared_broker.url) as client:
        client.create_topic(other, partition_count=1)
    parked = job.run(spark, _request(shared_broker, topic, to=other))
    assert (parked.counts["parked"], parked.counts["moved"], parked.is_failure) == (4, 0, False)
    assert parked.notes == ["4 were sent back too often already and stay; force sends them, too"]
    forced = job.run(spark, _request(shared_broker, topic, to=other, force=True, where="redrive_count = 5"))
    assert forced.counts["moved"] == 4
    with RestClient(shared_broker.url) as client:
        messages = client.read(other, 0).messages
    assert [sorted(message.headers) for message in messages] == [
        [("gq-redrive-count", b"6"), ("own", b"kept")]
    ] * 4


def test_letters_of_a_queue_go_back_to_it(spark: SparkSession, shared_broker: Broker, topic: str) -> None:
    """From publish to reject to redrive to the worker, without a letter that the test has made itself."""
    with RestClient(shared_broker.url) as client:
        client.create_topic(topic, partition_count=1)
    messages = [{"value": str(at), "key": f"k{at}"} for at in range(20)]
    assert call(shared_broker, "POST", f"/topics/{topic}/messages", {"messages": messages}).status == 200
    worker = Worker(shared_broker, f"g-{topic}", topics=[topic])
    for at, message in enumerate(worker.poll_all(20, visibility="10m")):
        reason = "out of stock" if at % 2 else "no such item"
        assert worker.finish("reject", message, reason=reason).status == 200
    deadline = time.monotonic() + 60
    while call(shared_broker, "GET", f"/topics/{topic}.dlq").body.get("total_messages") != 20:
        assert time.monotonic() < deadline, "the messages do not die"
    where = f"error = 'out of stock' AND consumer_group = 'g-{topic}' AND key_text LIKE 'k%' AND attempts = 1"
    report = job.run(spark, _request(shared_broker, topic, where=where))
    assert (report.counts["chosen"], report.counts["moved"]) == (10, 10)
    worker = Worker(shared_broker, f"g-{topic}", topics=[topic])  # the other one has been silent for long
    back = worker.poll_all(10)
    worker.ack(back)
    assert sorted(int(message["value"]) for message in back) == list(range(1, 20, 2))
    assert {message["headers"]["gq-redrive-count"] for message in back} == {"1"}


def test_what_cannot_be_is_said_in_one_sentence(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    with pytest.raises(PipelineError, match=r"there is no topic '.*dlq'; there are"):
        job.run(spark, _request(shared_broker, topic))
    _make_letters(shared_broker, topic, 2)
    with pytest.raises(PipelineError, match="there is no topic 'nowhere'"):
        job.run(spark, _request(shared_broker, topic, to="nowhere"))
    with pytest.raises(
        OptionError, match=r"where is 'nonsense', which Spark refuses: .*a dead letter has key"
    ):
        job.run(spark, _request(shared_broker, topic, where="nonsense"))
    with pytest.raises(OptionError, match=r"where is .*, which fails: .*") as error:
        job.run(spark, _request(shared_broker, topic, where="cast(error as int) = 1"))
    assert "\n" not in str(error.value)
    assert _values(shared_broker, topic) == []


def test_letters_of_a_topic_that_is_gone_stay_and_the_job_fails(
    spark: SparkSession, shared_broker: Broker, topic: str
) -> None:
    _make_letters(shared_broker, topic, 2)
    with RestClient(shared_broker.url) as client:
        client.delete_topic(topic)
    report = job.run(spark, _request(shared_broker, topic))
    assert (report.counts["failed"], report.counts["moved"], report.is_failure) == (2, 0, True)
    assert topic in report.notes[0]


def test_command_sends_letters_back(
    spark: SparkSession, shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "spark_session", lambda *_: nullcontext(spark))
    _make_letters(shared_broker, topic, 4)
    where = ["--bootstrap", shared_broker.kafka, "--url", shared_broker.url, "--where", "error = 'late'"]
    done = CliRunner().invoke(app, ["redrive", f"{topic}.dlq", *where, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["moved"] == 2
    assert _values(shared_broker, topic) == ["2", "3"]


@only_in_soak
def test_letters_go_once_though_the_broker_is_killed_under_the_job(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    letter_count, seen_count = 200, 20
    with Broker(tmp_path / "data") as broker:
        _make_letters(broker, topic, letter_count)

        def kill_when_some_have_gone() -> None:
            with RestClient(broker.url) as client:
                deadline = time.monotonic() + 120
                while client.topic(topic).total_messages < seen_count and time.monotonic() < deadline:
                    pass
            broker.kill9()

        killer = threading.Thread(target=kill_when_some_have_gone)
        killer.start()
        with pytest.raises(PipelineError, match="no answer from the broker"):
            job.run(spark, _request(broker, topic, rate=50))
        killer.join(120)
    with Broker(tmp_path / "data") as again:
        report = job.run(spark, _request(again, topic))
        assert report.counts["moved"] + report.counts["gone_before"] == letter_count
        assert report.counts["gone_before"] >= seen_count
        assert _values(again, topic) == sorted(map(str, range(letter_count)))
