"""Who writes: the names under which the broker knows batches and tasks."""

from __future__ import annotations

import pytest
from tests.support.sink_cluster import FakeCluster
from tests.support.sink_tasks import RUN, Task, finish, frame, options_of, values, write

from goqueue.core.txn.refusals import BATCH_ID_MAX, JOINT_ID_LENGTH_MAX
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.identity import RUN_ID, batch_of_stream, batch_of_write, identify, run_of_stream
from goqueue.pipeline.sink.ports import Batch


def test_batch_write_has_a_name_of_its_own_or_the_one_it_is_given() -> None:
    assert batch_of_write(options_of(), "x") == Batch("spark-batch-x", BATCH_ID_MAX)
    named = options_of(txnAppId="app", txnVersion="5")
    assert batch_of_write(named, "x").batch_id == 5
    assert batch_of_write(named, "x") == batch_of_write(named, "y")


def test_rows_without_keys_begin_somewhere_whatever_the_number_of_their_batch() -> None:
    cluster = FakeCluster({"t": 3})
    tasks = [identify(Task(task), batch_of_write(options_of(), RUN), RUN) for task in range(3)]
    finish(cluster, *(write(cluster, task, frame(b"1")) for task in tasks))
    assert {partition for _, _, partition, _ in cluster.sent} == {0, 1, 2}


def test_name_of_a_batch_write_counts_for_each_topic_by_itself() -> None:
    cluster = FakeCluster({"t": 1, "u": 1})
    for _ in range(2):
        for topic in ("t", "u"):
            options = options_of(topic=topic, txnAppId="a" * 160, txnVersion="5")
            task = identify(Task(), batch_of_write(options, RUN), RUN)
            finish(cluster, write(cluster, task, frame(b"1"), options=options), options=options)
    assert values(cluster, "t") == values(cluster, "u") == [b"1"]
    assert all(len(joint_id) <= JOINT_ID_LENGTH_MAX for joint_id in cluster.committed)


def test_tasks_of_a_run_have_one_name_for_all_its_batches() -> None:
    task = Task()
    assert run_of_stream(task, "made up") == "made up"
    task.properties[RUN_ID] = "run-7"
    assert run_of_stream(task, "made up") == "run-7"
    task.properties[RUN_ID] = "q"  # which a restart would not change, though its tasks may have other rows
    assert run_of_stream(task, "made up") == "made up"


def test_stream_without_identity_says_what_to_do_instead() -> None:
    with pytest.raises(PipelineError, match="foreachBatch with txnAppId"):
        batch_of_stream(Task(query=None))
    with pytest.raises(PipelineError, match="foreachBatch with txnAppId"):
        batch_of_stream(Task(batch=None))
