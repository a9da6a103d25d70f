"""Consume, transform, produce through Spark on a cluster, of which one node after the other is killed: output equals input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.cluster_load import Load, create
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster
from tests.support.sink_target import Target
from tests.support.spark_cluster import only_in_soak
from tests.support.spark_driver import SOURCE, STARTED, TARGET, changed
from tests.support.spark_processes import Tree, python_command

ASSIGNMENTS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
OFFSETS_MAX = 2_000
WAIT_S = 280.0  # for a step that takes seconds


@dataclass(frozen=True)
class Address:
    kafka: str


@contextmanager
def driver(kafka: str, checkpoint: Path) -> Iterator[Tree]:
    with TemporaryDirectory(prefix="gq-", ignore_cleanup_errors=True) as temporary:
        command = python_command("tests.support.spark_driver", kafka, str(checkpoint), str(OFFSETS_MAX))
        tree = Tree(command, name="driver", env={"TMPDIR": temporary})
        try:
            tree.output.wait_for(STARTED, timeout_s=WAIT_S)
            yield tree
        finally:
            tree.kill9()


def commits(checkpoint: Path) -> Callable[[int], Callable[[], bool]]:
    """Whether so many more micro-batches are done than now."""

    def count() -> int:
        return len(list((checkpoint / "commits").glob("[0-9]*")))

    def more(wanted: int) -> Callable[[], bool]:
        goal = count() + wanted
        return lambda: count() >= goal

    return more


@only_in_soak
def test_query_goes_on_while_each_node_of_a_cluster_is_killed_once(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    more = commits(checkpoint)
    with LocalCluster(tmp_path / "nodes") as cluster:
        for topic in (SOURCE, TARGET):
            create(cluster, topic, ASSIGNMENTS)
        target = Target(Address(cluster.bootstrap), TARGET, len(ASSIGNMENTS))
        with Load(cluster, SOURCE) as load, driver(cluster.bootstrap, checkpoint) as query:
            until(more(2), "there are batches", timeout_s=WAIT_S)
            for number in cluster.nodes:
                cluster.kill9(number)
                until(more(3), f"it goes on without node {number}", timeout_s=WAIT_S)
                cluster.restart(number)
                until(more(2), f"it goes on with node {number}", timeout_s=WAIT_S)
            assert query.is_running, query.output.text()[-3_000:]
            load.finish()
            until(lambda: len(target.rows()) >= len(load.acked), "everything is copied", timeout_s=WAIT_S)
            assert target.values() == sorted(changed(value) for value in load.acked.values())
            load.check(len(ASSIGNMENTS))
