"""Peers that are not what they should be, and metadata that is damaged: real processes, and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.broker import Process
from tests.support.cluster_load import Load, create
from tests.support.cluster_rest import Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import ROOT, LocalCluster

ANYWHERE = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
ASSIGNMENTS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
METADATA = Path("logs/__cluster_metadata/0")


def flip(path: Path) -> None:
    """A bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def controller(rest: Rest, at: int) -> int:
    """Once there is one: a busy machine may be electing."""
    until(lambda: bool(rest.get(at, "/cluster/health")["controller"]), "there is a controller")
    return int(rest.get(at, "/cluster/health")["controller"].removeprefix("node-"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("peers")
    return found


def test_damaged_metadata_is_put_aside_and_fetched_again(folder: Path) -> None:
    with LocalCluster(folder) as cluster:
        rest = Rest(cluster)
        create(cluster, "orders", ASSIGNMENTS)
        with Load(cluster, "orders") as load:
            until(load.wrote(100), "there is load")
            hurt = next(number for number in (1, 2, 3) if number != controller(rest, 1))
            other = next(number for number in (1, 2, 3) if number not in (hurt, controller(rest, 1)))
            cluster.kill9(hurt)
            logs = sorted((folder / f"node-{hurt}" / METADATA).glob("*.log"))
            flip(logs[0])
            cluster.restart(hurt)
            cluster.nodes[hurt].stderr.wait_for("the metadata log is damaged; it is put aside")
            assert list((folder / f"node-{hurt}" / "quarantine").rglob("*.log"))
            until(load.wrote(100), "it goes on")
            until(lambda: rest.get(other, "/cluster/health")["status"] == "ok", "its vote counts again")
            cluster.kill9(other)  # now the one that was hurt has to count
            said = rest.eventually((hurt,), "POST", "/topics", {"name": "decided", "num_partitions": 1})
            assert said.status == 201, said
            load.finish()
            load.check(len(ASSIGNMENTS))


def test_second_process_under_the_name_of_a_node_does_not_join_and_the_first_goes_on(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, patience=5) as cluster:  # one that is dead is not protected
        rest = Rest(cluster)
        create(cluster, "orders", ASSIGNMENTS)
        victim = next(number for number in (1, 2, 3) if number != controller(rest, 1))
        before = {one["name"]: one["incarnation"] for one in rest.get(1, "/cluster/nodes")["nodes"]}
        with Load(cluster, "orders") as load:
            until(load.wrote(100), "there is load")
            second = cluster.start_namesake(victim)
            try:
                second.stderr.wait_for(f"a node 'node-{victim}' is running at", timeout_s=60)
                assert second.wait() != 0
                until(load.wrote(300), "it goes on")
                after = {one["name"]: one["incarnation"] for one in rest.get(1, "/cluster/nodes")["nodes"]}
                assert after == before
                until(lambda: rest.get(victim, "/cluster/health")["status"] == "ok", "all is well")
            finally:
                second.kill9()
            load.finish()
            load.check(len(ASSIGNMENTS))


def test_node_of_another_cluster_is_refused_with_both_names(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with LocalCluster(tmp_path / "one") as one, LocalCluster(tmp_path / "two", size=1) as two:
        ids = [Rest(cluster).get(1, "/cluster/state")["cluster_id"] for cluster in (one, two)]
        assert two.nodes[1].stop() == 0
        stranger = one.start_elsewhere(1, tmp_path / "two" / "node-1")
        try:
            found = stranger.stderr.wait_for(r"belongs to cluster '([^']+)', not to '([^']+)'", timeout_s=60)
            assert sorted(found.groups()) == sorted(ids)
        finally:
            stranger.kill9()
        until(lambda: Rest(one).get(2, "/cluster/health")["status"] == "ok", "all is well")


def test_a_folder_of_a_cluster_is_refused_by_a_broker_alone_and_keeps_everything(tmp_path: Path) -> None:
    """Whoever forgets --peers would put aside what the cluster has acknowledged."""
    (tmp_path / "cluster").mkdir()
    with LocalCluster(tmp_path / "cluster") as cluster:
        create(cluster, "orders", ASSIGNMENTS)
        for number in (1, 2, 3):
            cluster.kill9(number)
    folder = tmp_path / "cluster" / "node-1"
    held = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    for more in ((), ("--node-id", "node-1")):
        with Process("serve", "--data-dir", str(folder), *ANYWHERE, *more) as alone:
            assert alone.wait(timeout_s=60) == 1
            assert "the data folder belongs to node 'node-1' of a cluster" in alone.stderr.text()
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == held


def test_the_runbook_names_what_is_seen() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    for said in (
        "this node cannot join",
        "the data folder belongs to node",
        "belongs to cluster",
        "understands feature level",
        "is not understood",
    ):
        assert said in page
