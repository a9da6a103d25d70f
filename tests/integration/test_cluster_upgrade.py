"""Nodes of an older feature level are upgraded one after another while stock clients write and read; then what is new works."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster_load import Load, create
from tests.support.cluster_rest import Json, Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

from goqueue.core.cluster.levels import LEVEL_NEWEST, LEVEL_OLDEST

NODES = (1, 2, 3)
KEYED = {"name": "keyed", "num_partitions": 2, "config": {"scaling": "keyed"}}


def levels(rest: Rest) -> set[int]:
    """In force, as the nodes know it."""
    return {rest.get(node, "/cluster/state")["level"] for node in NODES}


def voters_after(rest: Rest, method: str, path: str, body: Json = None) -> list[str]:
    """Of a change that a busy machine may refuse for now."""
    said = rest.eventually((2,), method, f"/cluster/voters{path}", body)
    assert said.status == 200 or said.body["code"] == "VOTERS_REFUSED", said
    found: list[str] = rest.get(2, "/cluster/voters")["voters"]
    return found


def test_nodes_are_upgraded_one_after_another_under_load(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, level=LEVEL_OLDEST) as cluster:
        rest = Rest(cluster)
        create(cluster, "orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        with Load(cluster, "orders") as load:
            until(load.wrote(200), "there is load")
            for number in NODES:
                assert levels(rest) == {LEVEL_OLDEST}
                for path, body in (("/topics", KEYED), ("/cluster/voters", {"node": "node-1"})):
                    refused = rest.eventually(NODES, "POST", path, body)
                    assert (refused.status, refused.body["code"]) == (409, "LEVEL_TOO_LOW"), refused
                    assert "level 1 is in force" in refused.body["error"]
                cluster.upgrade(number)
                until(load.wrote(200), "it goes on")
            until(lambda: levels(rest) == {LEVEL_NEWEST}, "the level is raised")

            assert rest.eventually(NODES, "POST", "/topics", KEYED).status == 201
            assert rest.eventually((2,), "POST", "/admin/topics/keyed/partitions", {"count": 4}).status == 200
            until(lambda: "node-3" not in voters_after(rest, "DELETE", "/node-3"), "node 3 does not vote")
            until(
                lambda: "node-3" in voters_after(rest, "POST", "", {"node": "node-3"}), "node 3 votes again"
            )
            load.finish()
            load.check(3)

        older = cluster.add(4, level=LEVEL_OLDEST)
        older.stderr.wait_for("understands feature level 1, and the cluster is at level 2")
        assert older.wait() == 1
