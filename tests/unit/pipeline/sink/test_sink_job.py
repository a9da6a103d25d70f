"""A write from its first row to its commit, against a cluster in memory: what is seen after retries, replays and failures."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sink_cluster import FakeCluster
from tests.support.sink_tasks import RUN, Task, finish, frame, options_of, stream_task, values, write

from goqueue.model.dead_letter_headers import ERROR, GROUP, MISSING, PARTITION, REASON, TOPIC
from goqueue.pipeline.errors import BadRow, PipelineError
from goqueue.pipeline.sink.batch_writer import BatchWriter
from goqueue.pipeline.sink.identity import (
    batch_of_write,
    identify,
)
from goqueue.pipeline.sink.job import abort, write_task
from goqueue.pipeline.sink.messages import TaskWritten, those_of
from goqueue.pipeline.sink.options import sink_options
from goqueue.pipeline.sink.ports import Batch

# ---------------------------------------------------------------- exactly once


def test_rows_are_seen_when_the_batch_is_committed_and_not_before() -> None:
    cluster = FakeCluster({"t": 2})
    first = write(cluster, stream_task(0), frame(b"1", b"2"), frame(b"3"))
    second = write(cluster, stream_task(1), frame(b"4"))
    assert values(cluster) == []
    finish(cluster, first, second)
    assert values(cluster) == [b"1", b"2", b"3", b"4"]
    assert first.rows == {"t": 3}


def test_attempts_whose_messages_do_not_arrive_do_not_count() -> None:
    cluster = FakeCluster({"t": 1})
    write(cluster, stream_task(0, attempt=1), frame(b"lost"))
    finish(cluster, write(cluster, stream_task(0, attempt=2), frame(b"kept")))
    assert values(cluster) == [b"kept"]
    assert not cluster.open_members


def test_replay_of_a_committed_batch_reads_and_writes_nothing() -> None:
    cluster = FakeCluster({"t": 1})
    finish(cluster, write(cluster, stream_task(), frame(b"1")))
    taken: list[int] = []

    def replayed() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            taken.append(number)
            yield frame(b"1")

    again = write_task(lambda: cluster, options_of(), ["value"], stream_task(attempt=9), replayed())
    assert again.is_replay
    assert taken == [0]
    finish(cluster, again)
    assert values(cluster) == [b"1"]


def test_replay_of_a_batch_that_later_ones_follow_is_refused_for_its_rows_may_be_others() -> None:
    cluster = FakeCluster({"t": 1})
    for batch in (3, 4, 5):
        finish(cluster, write(cluster, stream_task(batch=batch), frame(b"%d" % batch)), is_stream=True)
    for batch in (3, 4):
        again = write(cluster, stream_task(attempt=9, batch=batch), frame(b"other rows"))
        with pytest.raises(
            PipelineError, match=f"micro-batch {batch} of spark-stream-q was .* checkpointLocation"
        ):
            finish(cluster, again, is_stream=True)
    finish(cluster, write(cluster, stream_task(attempt=9, batch=5), frame(b"5")), is_stream=True)
    assert values(cluster) == [b"3", b"4", b"5"]


def test_commit_whose_answer_was_lost_is_reported_and_one_that_wrote_nothing_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, path = FakeCluster({"t": 1}), tmp_path / "report.json"
    options = options_of(txnAppId="app", txnVersion="5", reportPath=str(path))
    task = identify(Task(), batch_of_write(options, RUN), RUN)
    message = write(cluster, task, frame(b"1"), options=options)
    cluster.commit(message.batch, [message.member] if message.member else [])
    finish(cluster, message, options=options)
    assert json.loads(path.read_text())["rows"] == {"t": 1}
    assert not caplog.messages
    path.unlink()
    finish(cluster, write(cluster, task, frame(b"1"), options=options), options=options)
    assert not path.exists()
    assert caplog.messages == [f"nothing written, committed before joint={task.whole.joint_id} batch=5"]


def test_commit_may_come_again() -> None:
    cluster = FakeCluster({"t": 1})
    message = write(cluster, stream_task(), frame(b"1"))
    finish(cluster, message)
    finish(cluster, message)
    assert values(cluster) == [b"1"]


def test_abort_after_a_commit_takes_nothing_back() -> None:
    cluster = FakeCluster({"t": 1})
    message = write(cluster, stream_task(), frame(b"1"))
    finish(cluster, message)
    abort(lambda: cluster, options_of(), message.batch)
    assert values(cluster) == [b"1"]


def test_batch_can_be_written_again_after_an_abort() -> None:
    cluster = FakeCluster({"t": 1})
    message = write(cluster, stream_task(), frame(b"1"))
    abort(lambda: cluster, options_of(), message.batch)
    with pytest.raises(PipelineError):
        finish(cluster, message)
    finish(cluster, write(cluster, stream_task(attempt=2), frame(b"1")))
    assert values(cluster) == [b"1"]


def test_after_an_abort_that_is_final_nobody_is_let_in() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of()
    task = identify(Task(), batch_of_write(options, RUN), RUN)
    message = write(cluster, task, frame(b"1"))
    abort(lambda: cluster, options, message.batch, is_final=True)
    late = write(cluster, task, frame(b"late"))
    assert late.is_replay
    assert not cluster.open_members
    assert values(cluster) == []


@pytest.mark.parametrize(
    ("name", "is_final"), [({}, True), ({"txnAppId": "copy", "txnVersion": "1"}, False)], ids=["none", "app"]
)
def test_job_that_fails_is_over_unless_its_name_comes_again(name: dict[str, str], is_final: bool) -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(**name)
    writer = BatchWriter(options, ("value",), lambda: cluster)
    writer.abort([])
    late = write(cluster, identify(Task(), writer._batch, RUN), frame(b"late"), options=options)
    assert late.is_replay == is_final
    assert bool(cluster.open_members) != is_final


def test_abort_that_is_final_takes_nothing_back_after_a_commit() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of()
    message = write(cluster, identify(Task(), batch_of_write(options, RUN), RUN), frame(b"1"))
    finish(cluster, message)
    abort(lambda: cluster, options, message.batch, is_final=True)
    assert values(cluster) == [b"1"]


def test_replay_with_rows_in_other_tasks_leaves_no_duplicate() -> None:
    cluster = FakeCluster({"t": 1})
    write(cluster, stream_task(0, 1), frame(b"1", b"2"))
    again = [
        write(cluster, stream_task(task, 10 + task), frame(value)) for task, value in enumerate([b"2", b"1"])
    ]
    finish(cluster, *again)
    assert sorted(value or b"" for value in values(cluster)) == [b"1", b"2"]


def test_task_without_rows_asks_nobody() -> None:
    cluster = FakeCluster({"t": 1})
    message = write(cluster, stream_task(), frame())
    assert message == TaskWritten(Batch("spark-stream-q", 3))
    assert cluster.calls == []


def test_batch_without_rows_is_committed_and_frees_what_was_lost() -> None:
    cluster = FakeCluster({"t": 1})
    write(cluster, stream_task(0, 1), frame(b"lost"))
    finish(cluster, write(cluster, stream_task(0, 2), frame()))
    assert not cluster.open_members
    assert write(cluster, stream_task(0, 3), frame(b"1")).is_replay


def test_attempt_that_fails_gives_up_its_part_at_once() -> None:
    cluster = FakeCluster({"t": 1}, sends_before_failure=0)
    with pytest.raises(PipelineError, match="the network is gone"):
        write(cluster, stream_task(), frame(b"1"))
    assert cluster.calls == ["enrol", "give up"]
    assert not cluster.open_members
    assert cluster.close_count == 1


def test_source_that_fails_in_the_middle_gives_up_the_part() -> None:
    cluster = FakeCluster({"t": 1})

    def broken() -> Iterator[pa.RecordBatch]:
        yield frame(b"1")
        raise ValueError("upstream")

    with pytest.raises(ValueError, match="upstream"):
        write_task(lambda: cluster, options_of(), ["value"], stream_task(), broken())
    assert not cluster.open_members


def test_messages_of_failed_tasks_are_left_out() -> None:
    message = TaskWritten(Batch("j", 0))
    assert those_of([None, message, None]) == [message]
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301


# ---------------------------------------------------------------- other guarantees


def test_each_task_commits_for_itself_where_that_is_asked_for() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(guarantee="per_task")
    first = write(cluster, stream_task(0), frame(b"1"), options=options)
    assert first.member is None
    assert values(cluster) == [b"1"]
    again = write(cluster, stream_task(0, 1), frame(b"1"), options=options)
    assert again.is_replay
    abort(lambda: cluster, options, first.batch)
    finish(cluster, again, options=options)
    assert values(cluster) == [b"1"]


def test_task_of_a_later_run_is_another_even_if_it_has_the_same_number() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(guarantee="per_task")
    write(cluster, stream_task(0), frame(b"1"), options=options)
    write(cluster, stream_task(0, run="run-2"), frame(b"other rows"), options=options)
    assert values(cluster) == [b"1", b"other rows"]


def test_at_least_once_has_no_transaction() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(guarantee="at_least_once")
    message = write(cluster, stream_task(), frame(b"1"), options=options)
    assert values(cluster) == [b"1"]
    finish(cluster, message, options=options)
    abort(lambda: cluster, options, message.batch)
    assert cluster.calls == []


def test_fewer_acks_go_without_a_producer() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(guarantee="at_least_once", acks="1")
    write(cluster, stream_task(), frame(b"1"), options=options)
    assert values(cluster) == [b"1"]
    assert cluster.producer_count == 1


# ---------------------------------------------------------------- rows and batches


def test_unknown_topic_of_an_option_fails_whatever_becomes_of_bad_rows() -> None:
    cluster, options = FakeCluster({"u": 1}), options_of(badRows="skip")
    with pytest.raises(PipelineError, match="topic 't' does not exist; create it, or set createTopics=true"):
        write(cluster, stream_task(), frame(b"1"), options=options)
    assert not cluster.open_members


def test_rows_of_a_partition_keep_their_order_and_batches_their_size() -> None:
    cluster = FakeCluster({"t": 3})
    options = options_of(**{"batch.size": "2048", "compression.type": "gzip"})
    frames = [
        pa.record_batch(
            {
                "key": [f"k{n % 50}".encode() for n in range(start, start + 700)],
                "value": [f"{n:080}".encode() for n in range(start, start + 700)],
            }
        )
        for start in range(0, 4_200, 700)
    ]
    message = write(cluster, stream_task(), *frames, options=options)
    finish(cluster, message, options=options)
    assert message.rows == {"t": 4_200}
    for partition in range(3):
        numbers = [int(record.value or b"") for where, record in cluster.visible("t") if where == partition]
        assert numbers == sorted(numbers)
    assert len(values(cluster)) == 4_200
    assert all(len(batch) <= 2048 + 64 for *_, batch in cluster.sent)
    assert len(cluster.sent) < 4_200 // 10


def test_batch_that_compression_makes_too_long_goes_without() -> None:
    noise = bytes((n * n * 31 + n // 7 * 17) % 251 for n in range(930))
    cluster = FakeCluster({"t": 1}, {"t": {"max.message.bytes": "1024"}})
    options = options_of(**{"compression.type": "gzip"})
    finish(cluster, write(cluster, stream_task(), frame(noise), options=options))
    assert values(cluster) == [noise]


def test_values_name_their_schema_where_one_is_given() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(**{"schema.id": "258"})
    finish(cluster, write(cluster, stream_task(), frame(b"x", None), options=options))
    assert values(cluster) == [b"\x00\x00\x00\x01\x02x", None]


# ---------------------------------------------------------------- bad rows


def mixed() -> pa.RecordBatch:
    """Two good rows, one for a partition that is not there, one with an impossible priority, one too large."""
    return frame(
        b"good",
        b"far",
        b"urgent",
        b"x" * 3_000,
        None,
        key=pa.array([b"a", b"b", b"c", b"d", b"e"], pa.binary()),
        partition=pa.array([0, 9, 0, 0, 0], pa.int64()),
        priority=pa.array([1, 1, 7, None, None], pa.int64()),
    )


SMALL = {"t": {"max.message.bytes": "2048"}, "t.dlq": {"max.message.bytes": "2048"}}


def test_bad_row_fails_the_write_and_is_named() -> None:
    cluster = FakeCluster({"t": 2}, SMALL)
    with pytest.raises(BadRow) as failure:
        write(cluster, stream_task(), mixed())
    said = str(failure.value)
    assert "topic 't' with key b'b'" in said
    assert "its partition is 9 and topic t has 2: 0 to 1" in said
    assert "3 of these 5 rows" in said
    assert not cluster.sent


NO_TEXT = pa.array([b"\xff", b"t"]).view(pa.string())  # as Spark casts bytes


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"timestamp": pa.array([4 * 10**17, None], pa.timestamp("us", tz="UTC"))},
            "timestamp 400000000000000000 microseconds from 1970",
        ),
        (
            {"deliver_at": pa.array([-(10**18), None], pa.timestamp("us", tz="UTC"))},
            "deliver_at -1000000000000000000 microseconds from 1970",
        ),
        ({"topic": NO_TEXT}, "topic '\ufffd' does not exist"),
        (
            {
                "headers": pa.ListArray.from_arrays(
                    pa.array([0, 1, 2], pa.int32()),
                    pa.StructArray.from_arrays([NO_TEXT, pa.array([b"1", b"2"])], names=["key", "value"]),
                )
            },
            "a header's name is not UTF-8",
        ),
    ],
)
def test_value_that_python_has_no_type_for_is_a_bad_row_as_any(
    columns: dict[str, pa.Array], problem: str
) -> None:
    given = {"bootstrap.servers": "localhost:1"} | ({} if "topic" in columns else {"topic": "t"})
    rows = frame(b"bad", b"good", **columns)
    with pytest.raises(BadRow, match=problem):
        write(FakeCluster({"t": 1}), stream_task(), rows, options=sink_options(given))
    given |= {"badRows": "dead_letter", "deadLetterTopic": "d"}
    cluster = FakeCluster({"t": 1})
    finish(cluster, write(cluster, stream_task(), rows, options=sink_options(given)))
    assert (values(cluster), values(cluster, "d")) == ([b"good"], [b"bad"])


def test_bad_rows_are_left_out_and_counted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    cluster, options = FakeCluster({"t": 2}, SMALL), options_of(badRows="skip", reportPath=str(report))
    message = write(cluster, stream_task(), mixed(), options=options)
    with caplog.at_level(logging.WARNING):
        finish(cluster, message, options=options)
        again = write(cluster, stream_task(attempt=9), mixed(), options=options)
        finish(cluster, again, options=options, is_stream=True)
    assert values(cluster) == [b"good", None]
    counts = {"partition out of range": 1, "priority out of range": 1, "too large": 1}
    assert message.bad_rows == counts
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "bad rows left out: count=3 (partition out of range=1, priority out of range=1, too large=1) written=2 "
        "joint=spark-stream-q batch=3"
    ]
    assert json.loads(report.read_text()) == {
        "joint_id": "spark-stream-q",
        "batch_id": 3,
        "rows": {"t": 2},
        "bad_rows": counts,
    }
    assert list(tmp_path.iterdir()) == [report]


def test_report_that_cannot_be_saved_does_not_fail_what_is_committed(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(reportPath=str(tmp_path / "nowhere" / "report.json"))
    finish(cluster, write(cluster, stream_task(), frame(b"1"), options=options), options=options)
    assert values(cluster) == [b"1"]
    assert "nowhere/report.json" in caplog.text


def test_bad_rows_become_dead_letters_in_the_same_transaction() -> None:
    cluster, options = FakeCluster({"t": 2, "t.dlq": 1}, SMALL), options_of(badRows="dead_letter")
    message = write(cluster, stream_task(), mixed(), options=options)
    assert values(cluster, "t.dlq") == []
    finish(cluster, message, options=options)
    assert values(cluster) == [b"good", None]
    letters = [record for _, record in cluster.visible("t.dlq")]
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"b", b"far"),
        (b"c", b"urgent"),
        (b"d", b""),
    ]
    told = [dict(letter.headers) for letter in letters]
    assert [one[REASON] for one in told] == [
        b"partition out of range",
        b"priority out of range",
        b"too large",
    ]
    assert told[0][PARTITION] == b"9"
    assert told[0][TOPIC] == b"t"
    assert told[0][GROUP] == b"spark-stream-q"
    assert told[1][ERROR] == b"its priority is 7; it must be 0 to 4"
    assert told[2][MISSING] == b"the value is too large for this topic, too"
    assert [letter.headers[0][0] for letter in letters] == [TOPIC] * 3


def test_dead_letter_topic_is_created_where_it_is_missing() -> None:
    cluster, options = FakeCluster({"t": 1}), options_of(badRows="dead_letter", deadLetterTopic="graves")
    rows = frame(b"x", partition=pa.array([5], pa.int64()))
    finish(cluster, write(cluster, stream_task(), rows, options=options), options=options)
    assert "create graves" in cluster.calls
    assert values(cluster, "graves") == [b"x"]


def test_row_without_a_topic_needs_a_dead_letter_topic_with_a_name_of_its_own() -> None:
    rows = frame(b"1", b"2", topic=pa.array([None, "nowhere"]))
    cluster = FakeCluster({"t": 1})
    given = {"bootstrap.servers": "localhost:1", "badRows": "dead_letter"}
    with pytest.raises(BadRow, match="set deadLetterTopic to a name without"):
        write(cluster, stream_task(), rows, options=sink_options(given))
    options = sink_options({**given, "deadLetterTopic": "graves"})
    finish(cluster, write(cluster, stream_task(), rows, options=options), options=options)
    told = [dict(record.headers) for _, record in cluster.visible("graves")]
    assert [(one[TOPIC], one[REASON]) for one in told] == [(b"", b"no topic"), (b"nowhere", b"unknown topic")]


def test_dead_letter_keeps_its_headers_but_not_a_time_of_delivery() -> None:
    headers = [[{"key": "trace", "value": b"1"}, {"key": "gq-deliver-at", "value": b"99999999999999"}]]
    rows = frame(
        b"x", headers=pa.array(headers, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    )
    cluster, options = FakeCluster({"t": 1}), options_of(badRows="dead_letter")
    finish(cluster, write(cluster, stream_task(), rows, options=options), options=options)
    ((_, letter),) = cluster.visible("t.dlq")
    assert letter.headers[0] == ("trace", b"1")
    assert b"guarantee=at_least_once" in (dict(letter.headers)[ERROR] or b"")
    assert "gq-deliver-at" not in dict(letter.headers)
