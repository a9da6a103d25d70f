"""The sink against a real broker, without Spark: what committed readers see after lost, repeated and late attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.broker import Broker
from tests.support.kafka_clients import until
from tests.support.sink_target import Target

from goqueue.client.connection import Connection
from goqueue.client.rest import NewMessage, RestClient
from goqueue.model.partitioner import Partitioner
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.identity import TaskIdentity
from goqueue.pipeline.sink.job import abort, commit, write_task
from goqueue.pipeline.sink.live import connect
from goqueue.pipeline.sink.messages import TaskWritten
from goqueue.pipeline.sink.options import SinkOptions, sink_options
from goqueue.pipeline.sink.ports import Batch


@pytest.fixture
def target(shared_broker: Broker, topic: str) -> Target:
    return Target(shared_broker, topic)


class Job:
    """A job whose tasks are called one by one."""

    def __init__(self, target: Target, options: dict[str, str] | None = None, *, batch: int = 0) -> None:
        given = {"kafka.bootstrap.servers": target.broker.kafka, "topic": target.topic, **(options or {})}
        self.options: SinkOptions = sink_options(given)
        self.whole = Batch(f"job-{target.topic}", batch)
        self.connect = partial(connect, self.options.connection)

    def attempt(self, name: str, *frames: pa.RecordBatch) -> TaskWritten:
        own = Batch(f"task-{self.whole.joint_id}-{name.split('-')[0]}", self.whole.batch_id)
        identity = TaskIdentity(self.whole, own, name, 0)
        return write_task(self.connect, self.options, frames[0].schema.names, identity, iter(frames))

    def commit(self, *messages: TaskWritten, is_stream: bool = False) -> None:
        commit(self.connect, self.options, self.whole, messages, is_stream=is_stream)

    def abort(self) -> None:
        abort(self.connect, self.options, self.whole)


def frame(*values: bytes, **columns: list[Any]) -> pa.RecordBatch:  # Any: as Arrow takes them
    return pa.record_batch({"value": list(values), **columns})


def test_only_the_attempts_that_won_are_seen_and_nobody_waits_for_the_others(target: Target) -> None:
    target.create()
    job = Job(target)
    job.attempt("0-1", frame(b"lost", partition=[0]))
    winner = job.attempt("0-2", frame(b"won", partition=[0]))
    job.attempt("0-3", frame(b"speculated", partition=[1]))
    other = job.attempt("1-4", frame(b"also", partition=[1]))
    assert target.rows() == []
    job.commit(winner, other)
    assert target.values() == [b"also", b"won"]
    assert target.is_settled


def test_batch_is_written_once_however_often_it_is_tried(target: Target) -> None:
    target.create()
    job = Job(target)
    first = job.attempt("0-1", frame(b"1", b"2"))
    job.commit(first)
    job.commit(first)
    job.abort()
    again = job.attempt("0-9", frame(b"1"), frame(b"2"))
    assert again.is_replay
    job.commit(again)
    assert target.values() == [b"1", b"2"]
    job = Job(target, batch=1)
    job.commit(job.attempt("0-1", frame(b"3")))
    assert target.values() == [b"1", b"2", b"3"]


def test_checkpoint_that_was_put_back_is_refused_and_the_last_batch_may_be_repeated(target: Target) -> None:
    target.create()
    for batch in range(3):
        job = Job(target, batch=batch)
        job.commit(job.attempt("0-1", frame(b"%d" % batch)), is_stream=True)
    put_back = Job(target, batch=1)
    with pytest.raises(PipelineError, match=r"micro-batch 1 of .* was committed before, and later ones too"):
        put_back.commit(put_back.attempt("0-2", frame(b"other rows")), is_stream=True)
    job.commit(job.attempt("0-2", frame(b"2")), is_stream=True)
    job = Job(target, batch=3)
    message = job.attempt("0-3", frame(b"3"))
    late = Job(target, batch=2)
    late.commit(
        late.attempt("0-4", frame(b"2")), is_stream=True
    )  # a driver that is behind takes nothing from it
    job.commit(message, is_stream=True)
    assert target.values() == [b"0", b"1", b"2", b"3"]
    assert target.is_settled


def test_aborted_batch_is_gone_at_once_and_can_be_written_again(target: Target) -> None:
    target.create()
    job = Job(target)
    job.attempt("0-1", frame(b"1"))
    assert not target.is_settled
    job.abort()
    until(lambda: target.is_settled, "readers go on")
    job.commit(job.attempt("0-2", frame(b"1")))
    assert target.values() == [b"1"]


def test_orphans_of_a_driver_that_died_hold_readers_up_until_the_next_commit_only(target: Target) -> None:
    target.create()
    job = Job(target)
    for task in range(4):
        job.attempt(f"{task}-0", frame(b"orphan"))
    after = Job(target)
    after.commit(*(after.attempt(f"{task}-9", frame(b"row")) for task in range(4)))
    until(lambda: target.is_settled, "readers go on")
    assert target.values() == [b"row"] * 4


def test_attempt_that_fails_holds_nobody_up(target: Target) -> None:
    target.create()
    job = Job(target, {"batch.size": "1024"})

    def broken() -> Iterator[pa.RecordBatch]:
        yield frame(*[b"x" * 100] * 100)
        raise ValueError("upstream")

    identity = TaskIdentity(job.whole, job.whole, "0-0", 0)
    with pytest.raises(ValueError, match="upstream"):
        write_task(job.connect, job.options, ["value"], identity, broken())
    until(lambda: target.is_settled, "readers go on")
    assert target.rows() == []


def test_tasks_that_commit_for_themselves_are_each_seen_at_once(target: Target) -> None:
    target.create()
    job = Job(target, {"guarantee": "per_task"})
    job.attempt("0-1", frame(b"1"))
    assert target.values() == [b"1"]
    assert job.attempt("0-2", frame(b"1")).is_replay
    job.attempt("1-3", frame(b"2"))
    assert target.values() == [b"1", b"2"]
    assert target.is_settled


def test_delayed_rows_arrive_where_there_is_no_transaction(shared_broker: Broker, target: Target) -> None:
    target.create()
    job = Job(target, {"guarantee": "at_least_once"})
    due = pa.array([datetime.now(UTC) + timedelta(hours=1), None], pa.timestamp("us", "UTC"))
    job.attempt("0-1", pa.record_batch({"value": [b"later", b"now"], "deliver_at": due}))
    assert target.values() == [b"now"]
    with closing(Connection(shared_broker.url, timeout_s=10)) as rest:
        reply = rest.request("GET", f"/topics/{target.topic}/delayed")
    assert json.loads(reply.body)["count"] == 1
    with pytest.raises(PipelineError, match="guarantee=at_least_once"):
        Job(target).attempt("0-1", pa.record_batch({"value": [b"later", b"now"], "deliver_at": due}))


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_rows_arrive_with_any_acks(target: Target, acks: str) -> None:
    target.create()
    Job(target, {"guarantee": "at_least_once", "acks": acks}).attempt("0-1", frame(b"1", b"2"))
    until(lambda: target.values() == [b"1", b"2"], "they are there")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_every_codec(target: Target, codec: str) -> None:
    target.create()
    job = Job(target, {"compression.type": codec, "batch.size": "4096"})
    values = [f"{number:0100}".encode() for number in range(1_000)]
    job.commit(job.attempt("0-1", frame(*values[:600]), frame(*values[600:])))
    assert target.values() == values


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_keys_land_where_rest_puts_them(
    shared_broker: Broker, target: Target, partitioner: Partitioner
) -> None:
    target.create(partitioner=partitioner.value)
    keys = [f"customer-{number * 7919}".encode() for number in range(300)]
    with RestClient(shared_broker.url) as rest:
        messages = [NewMessage(b"rest", key) for key in keys]
        by_rest = [one.partition for one in rest.publish(target.topic, messages)]
    job = Job(target)
    job.commit(job.attempt("0-1", frame(*[b"sink"] * len(keys), key=keys)))
    by_sink = {row.key: row.partition for row in target.rows() if row.value == b"sink"}
    assert [by_sink[key] for key in keys] == by_rest


def test_transaction_that_took_too_long_names_the_option(target: Target) -> None:
    target.create()
    job = Job(target, {"transaction.timeout.ms": "500"})

    def write_slowly() -> None:
        message = job.attempt("0-1", frame(b"1"))  # which a busy machine may not have done in time either
        until(lambda: target.is_settled, "the broker gives it up")
        job.commit(message)

    with pytest.raises(PipelineError, match=r"Raise transaction\.timeout\.ms"):
        write_slowly()
    assert target.rows() == []


def test_timeout_that_the_broker_does_not_allow_names_the_option(target: Target) -> None:
    target.create()
    with pytest.raises(PipelineError, match=r"set the option transaction\.timeout\.ms"):
        Job(target, {"transaction.timeout.ms": "20d"}).attempt("0-1", frame(b"1"))


def test_broker_that_does_not_answer_is_named(target: Target) -> None:
    job = Job(target, {"kafka.bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "300"})
    with pytest.raises(PipelineError, match=r"no broker of 127\.0\.0\.1:1 answers"):
        job.attempt("0-1", frame(b"1"))


def test_topic_that_goes_while_it_is_written_is_said_to_be_gone(
    shared_broker: Broker, target: Target
) -> None:
    target.create()
    job = Job(target, {"batch.size": "1024", "request.timeout.ms": "10s"})

    def rows() -> Iterator[pa.RecordBatch]:
        yield frame(*[b"x" * 100] * 100)
        with RestClient(shared_broker.url) as rest:
            rest.delete_topic(target.topic)
        yield frame(*[b"x" * 100] * 100)

    identity = TaskIdentity(job.whole, job.whole, "0-0", 0)
    with pytest.raises(PipelineError, match="the topic was deleted, or has fewer partitions"):
        write_task(job.connect, job.options, ["value"], identity, rows())


def test_topics_are_created_where_that_is_asked_for(shared_broker: Broker, target: Target) -> None:
    job = Job(target, {"createTopics": "true"})
    job.commit(job.attempt("0-1", frame(b"1")), job.attempt("1-1", frame(b"2")))
    with RestClient(shared_broker.url) as rest:
        count = rest.topic(target.topic).partitions
    assert Target(target.broker, target.topic, count).values() == [b"1", b"2"]


def test_row_of_the_largest_size_fits_and_one_more_byte_is_a_bad_row(target: Target) -> None:
    target.create(**{"max.message.bytes": "100000"})
    job = Job(target)
    with pytest.raises(PipelineError, match="it takes up to 100026 bytes"):
        job.attempt("0-1", frame(b"x" * 100_000))
    message = job.attempt("0-2", *(frame(b"x" * size) for size in range(99_886, 99_911)))
    job.commit(message)
    assert len(target.values()) == 25


def test_broker_that_is_killed_while_rows_are_written_and_before_the_commit_changes_nothing(
    tmp_path: Path, topic: str
) -> None:
    with ExitStack() as running:
        first = running.enter_context(Broker(tmp_path / "data"))
        target = Target(first, topic).create()
        job = Job(target, {"batch.size": "4096"})
        values = [f"{number:0200}".encode() for number in range(600)]

        brokers = [first]

        def restart() -> None:
            brokers[-1].kill9()
            brokers.append(running.enter_context(Broker(tmp_path / "data", kafka=first.kafka)))

        def rows() -> Iterator[pa.RecordBatch]:
            for start in range(0, 600, 100):
                if start in (200, 400):
                    restart()
                yield frame(*values[start : start + 100])

        identity = TaskIdentity(job.whole, job.whole, "0-0", 0)
        message = write_task(job.connect, job.options, ["value"], identity, rows())
        restart()
        assert target.rows() == []
        job.commit(message)
        assert target.values() == values
