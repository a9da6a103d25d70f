"""A machine is lost for good and replaced, as docs/cluster.md says, with real processes and the command line."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.support.broker import clean_environment, command_line
from tests.support.cluster_load import Load, create
from tests.support.cluster_rest import Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

COMMAND_TIMEOUT_S = 240.0
LATER = "try again|is not heard of|votes already"  # what a busy machine may be told
ASSIGNMENTS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def cluster_command(cluster: LocalCluster, at: int, *args: str, code: int = 0) -> str:
    """`goqueue cluster ...` at a node; what it printed."""
    done = run(cluster, at, *args)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def run(cluster: LocalCluster, at: int, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("cluster", *args, "--url", cluster.nodes[at].url),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env=clean_environment(),
        check=False,
    )


def is_added(cluster: LocalCluster, name: str) -> bool:
    """One that has just begun with an empty disk has to wait a moment, also for a busy machine."""
    done = run(cluster, 4, "voters", "add", name, "--yes")
    assert done.returncode == 0 or re.search(LATER, done.stderr), done
    return done.returncode == 0 or "votes already" in done.stderr


def is_too_few_without(cluster: LocalCluster, name: str) -> bool:
    """The new controller may be changing when it is asked, and then it cannot say."""
    refused = cluster_command(cluster, 4, "voters", "remove", name, "--yes", code=1)
    assert "is not known" in refused or "only 1 would be alive, and 2 are needed" in refused, refused
    return "is not known" not in refused


def has_become_voter(rest: Rest, number: int) -> bool:
    """As `is_added`, by REST."""
    said = rest.eventually((4,), "POST", "/cluster/voters", {"node": f"node-{number}"})
    assert said.status == 200 or re.search(LATER, said.body["error"]), said
    return said.status == 200 or "votes already" in said.body["error"]


def has_ceased_to_vote(rest: Rest, number: int) -> bool:
    said = rest.eventually((5,), "DELETE", f"/cluster/voters/node-{number}")
    assert said.status == 200 or said.body["code"] == "VOTERS_REFUSED", said
    return f"node-{number}" not in rest.get(5, "/cluster/voters")["voters"]


@pytest.mark.timeout(600)
def test_a_machine_that_is_lost_for_good_is_replaced_and_then_another_one_may_be_lost(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        rest = Rest(cluster)
        create(cluster, "orders", ASSIGNMENTS)
        with Load(cluster, "orders") as load:
            until(load.wrote(200), "there is load")
            cluster.forget(1)
            until(load.wrote(200), "it goes on without node 1")

            cluster.add(4).until_ready()
            assert "node-4" not in cluster_command(cluster, 4, "voters", "list")
            until(partial(is_added, cluster, "node-4"), "node 4 votes")
            assert "node-4" in cluster_command(cluster, 2, "voters", "list")
            printed = cluster_command(cluster, 2, "voters", "remove", "node-1", "--yes")
            assert "the voters are node-2, node-3, node-4" in printed
            cluster_command(cluster, 3, "reassign", "start", "--drain", "node-1", "--wait", "--yes")
            assert "3 nodes: node-2, node-3, node-4" in cluster_command(
                cluster, 4, "remove", "node-1", "--yes"
            )
            until(lambda: rest.get(4, "/cluster/health")["status"] == "ok", "all is well")

            refused = cluster_command(cluster, 4, "voters", "add", "node-1", "--yes", code=1)
            assert "there is no node 'node-1'" in refused
            cluster.kill9(2)
            until(load.wrote(200), "it goes on without node 2")
            said = rest.eventually((3, 4), "POST", "/topics", {"name": "decided", "num_partitions": 1})
            assert said.status == 201, said
            until(partial(is_too_few_without, cluster, "node-3"), "node 3 has to stay")
            load.finish()
            load.check(len(ASSIGNMENTS))


def test_voters_that_nobody_has_configured_find_each_other_after_a_restart(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        rest = Rest(cluster)
        for number in (4, 5):
            cluster.add(number).until_ready()
            until(partial(has_become_voter, rest, number), f"node {number} votes")
        for number in (1, 2):
            until(partial(has_ceased_to_vote, rest, number), f"node {number} does not vote any more")
        assert rest.get(5, "/cluster/voters")["voters"] == ["node-3", "node-4", "node-5"]
        for number in (1, 2, 3, 4, 5):
            cluster.kill9(number)
        for number in (4, 5):  # those that are configured nowhere, and whose peers are all down
            cluster.begin_restart(number)
        for number in (4, 5):
            cluster.nodes[number].until_ready()
        assert rest.eventually((4, 5), "POST", "/topics", {"name": "decided"}).status == 201
