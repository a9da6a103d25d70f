"""Partitions are added to topics and moved to other nodes while stock clients write and read: they notice nothing but newer
metadata, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tests.support.cluster_load import PADDED_COUNT, Load, create, read_all
from tests.support.cluster_rest import Rest
from tests.support.kafka_admins import KafkaPythonAdmin
from tests.support.kafka_clients import until
from tests.support.kafka_python import errors
from tests.support.local_cluster import LocalCluster

ELECTION_NOT_NEEDED = 84
TIMEOUT_S = 60.0
NODES = (1, 2, 3, 4)


class KafkaPlace(NamedTuple):
    """Equal to the TopicPartition of kafka-python."""

    topic: str
    partition: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("moves")
    with LocalCluster(folder, size=4) as cluster:
        yield cluster


@pytest.fixture
def rest(cluster: LocalCluster) -> Rest:
    return Rest(cluster)


def replicas(rest: Rest, topic: str, node: int = 1) -> list[list[int]]:
    topics = rest.get(node, "/cluster/metadata")["topics"]
    (found,) = [one for one in topics if one["name"] == topic]
    return [one["state"]["replicas"] for one in found["partitions"]]


def plan_state(rest: Rest, id: int, nodes: tuple[int, ...] = NODES) -> str:
    """Nothing yet, if the node has not heard of the plan that another one has taken."""
    said = rest.eventually(nodes, "GET", f"/admin/reassignment/{id}")
    assert said.status in (200, 404), said
    return str(said.body["state"]) if said.status == 200 else ""


def test_a_topic_grows_under_load(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "growing", [[1, 2, 3], [2, 3, 4], [3, 4, 1]])
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with Load(cluster, "growing") as load:
        until(load.wrote(200), "there is load")
        admin.create_partitions([NewPartitions("growing", 6)])["growing"].result(30)
        until(load.wrote(200), "it goes on")
        assert rest.call(2, "POST", "/admin/topics/growing/partitions", {"count": 12}).status == 200
        until(lambda: {partition for partition, _ in load.acked} == set(range(12)), "all have records")
        load.finish()
        load.check(12)


def test_a_topic_moves_from_one_node_to_another_under_load(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "moving", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    with Load(cluster, "moving", padding=500) as load:
        until(load.wrote(500), "there is load")
        moves = [
            {"topic": "moving", "partition": 0, "replicas": ["node-1", 2, 4]},
            {"topic": "moving", "partition": 1, "replicas": [2, 4, 1]},
            {"topic": "moving", "partition": 2, "replicas": [4, 1, 2]},
        ]
        preview = rest.post(3, "/admin/reassignment", {"plan": moves, "dry_run": True})
        shares = {one["node"]: one for one in preview["nodes"]}
        assert shares["node-4"]["replicas_after"] == shares["node-4"]["replicas_before"] + 3
        assert shares["node-4"]["copied_bytes"] > 0
        order = {"plan": moves, "parallel": 2, "throttle_bytes_per_second": 4_000_000}
        plan = rest.post(3, "/admin/reassignment", order, status=202)
        until(lambda: plan_state(rest, plan["id"]) == "done", "everything has moved", timeout_s=TIMEOUT_S)
        until(load.wrote(200), "it goes on")
        load.finish()
        load.check(3)
    assert replicas(rest, "moving") == [[1, 2, 4], [2, 4, 1], [4, 1, 2]]


def test_a_plan_goes_on_under_another_controller(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "handed", [[1, 2, 3]] * 3)
    with Load(cluster, "handed", padding=1_000) as load:
        until(load.wrote(PADDED_COUNT), "there is something to copy")
        moves = [{"topic": "handed", "partition": index, "replicas": [1, 2, 4]} for index in range(3)]
        order = {"plan": moves, "parallel": 1, "throttle_bytes_per_second": 1_000_000}
        plan = rest.post(1, "/admin/reassignment", order, status=202)
        paused = rest.post(2, f"/admin/reassignment/{plan['id']}/pause", None)
        assert paused["state"] == "paused"
        until(lambda: _controller(rest, (1,)) != "", "there is a controller")
        controller = int(_controller(rest, (1,)).removeprefix("node-"))
        others = tuple(number for number in NODES if number != controller)
        cluster.kill9(controller)
        until(
            lambda: _controller(rest, others) not in ("", f"node-{controller}"), "there is another controller"
        )
        # The one that is asked may hear of the pause only from the new controller.
        until(lambda: plan_state(rest, plan["id"], others) == "paused", "it is still paused")
        resumed = rest.eventually(others, "POST", f"/admin/reassignment/{plan['id']}/resume")
        assert resumed.status == 200
        cluster.restart(controller)
        until(lambda: plan_state(rest, plan["id"]) == "done", "everything has moved", timeout_s=TIMEOUT_S)
        load.finish()
        load.check(3)
    assert replicas(rest, "handed") == [[1, 2, 4]] * 3


def _controller(rest: Rest, nodes: tuple[int, ...]) -> str:
    return str(rest.eventually(nodes, "GET", "/cluster/health").body["controller"] or "")


def test_a_plan_is_given_up(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "kept", [[1, 2, 3]])
    with Load(cluster, "kept", padding=1_000) as load:
        until(load.wrote(500), "there is something to copy")
        moves = [{"topic": "kept", "partition": 0, "replicas": [1, 2, 4]}]
        order = {"plan": moves, "throttle_bytes_per_second": 1_000}
        plan = rest.post(1, "/admin/reassignment", order, status=202)
        until(lambda: replicas(rest, "kept") == [[1, 2, 4, 3]], "it moves")
        refused = rest.call(2, "POST", "/admin/reassignment", {"drain": "node-3"})
        assert (refused.status, refused.body["code"]) == (409, "REASSIGNMENT_IN_PROGRESS")
        assert rest.call(4, "DELETE", f"/admin/reassignment/{plan['id']}").body["state"] == "cancelled"
        until(lambda: replicas(rest, "kept") == [[1, 2, 3]], "it is as it was")
        load.finish()
        load.check(1)
    (latest, *_) = rest.get(3, "/admin/reassignment")["reassignments"]
    assert latest["counts"] == {"waiting": 0, "moving": 0, "done": 0, "cancelled": 1, "failed": 0}


def test_tools_of_kafka_move_partitions_and_elect_leaders(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "tooled", [[1, 2, 3]])
    place = KafkaPlace("tooled", 0)
    admin: Any = KafkaPythonAdmin(cluster.nodes[2].kafka).client
    try:
        assert admin.alter_partition_reassignments({place: [4, 2, 3]}) == {place: None}
        until(lambda: replicas(rest, "tooled") == [[4, 2, 3]], "it has moved")
        assert admin.list_partition_reassignments() == {}
        for replicas_wanted, error in (
            (None, errors.NoReassignmentInProgressError),
            ([2, 2], errors.InvalidReplicationAssignmentError),
            ([2, 9], errors.InvalidReplicationAssignmentError),
        ):
            assert admin.alter_partition_reassignments({place: replicas_wanted}) == {place: error}
        until(lambda: election(admin, "tooled", 0) == ELECTION_NOT_NEEDED, "the preferred replica leads")
        assert election(admin, "tooled", 9) == errors.UnknownTopicOrPartitionError.errno
        assert election(admin, "tooled", 0, unclean=True) == ELECTION_NOT_NEEDED
        held: dict[int, list[int]] = {1: [], 2: [0], 3: [0], 4: [0]}
        until(
            lambda: {number: log_dir_partitions(admin, number, "tooled") for number in NODES} == held,
            "node 1 has dropped its replica",
        )
        until(
            lambda: sorted(one["broker_id"] for one in admin.describe_cluster()["brokers"]) == list(NODES),
            "all nodes are described",
        )
    finally:
        admin.close()


def election(admin: Any, topic: str, partition: int, *, unclean: bool = False) -> int:
    """The error of an election; 0 if there was one."""
    answer = admin.elect_leaders(int(unclean), {topic: [partition]}, raise_errors=False)
    (found,) = answer.replica_election_results
    (result,) = found.partition_result
    return int(result.error_code)


def log_dir_partitions(admin: Any, node: int, topic: str) -> list[int]:
    (answer,) = admin.describe_log_dirs(brokers=[node])
    (folder,) = answer["log_dirs"]
    return [
        int(partition["partition_index"])
        for one in folder["topics"]
        if one["name"] == topic
        for partition in one["partitions"]
    ]


def test_a_replica_that_lacks_messages_leads_if_that_is_allowed(cluster: LocalCluster, rest: Rest) -> None:
    create(cluster, "lossy", [[1, 2]], {"min.insync.replicas": "1"})
    write(cluster, "lossy", "before")
    until(lambda: sorted(state(rest, "lossy", (3, 4))["in_sync"]) == [1, 2], "both have it")
    cluster.kill9(2)
    until(lambda: state(rest, "lossy", (3, 4))["in_sync"] == [1], "only node 1 is in sync")
    write(cluster, "lossy", "lost")
    cluster.kill9(1)
    cluster.restart(2)
    until(lambda: state(rest, "lossy", (3, 4))["leader"] == -1, "nobody leads")
    allowed = {"config": {"unclean.leader.election.enable": True}}
    assert rest.eventually((3, 4), "PATCH", "/topics/lossy", allowed).status == 200
    until(lambda: state(rest, "lossy", (3, 4))["leader"] == 2, "node 2 leads")
    write(cluster, "lossy", "after")
    cluster.restart(1)
    until(lambda: sorted(state(rest, "lossy", (3, 4))["in_sync"]) == [1, 2], "node 1 follows")
    found = read_all(cluster, "lossy", 1, 200)
    assert sorted(found) == [(0, offset) for offset in range(200)]
    assert list(found.values()) == [b"before"] * 100 + [b"after"] * 100


def write(cluster: LocalCluster, topic: str, value: str) -> None:
    """A hundred times."""
    producer: Any = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(100):
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0


def state(rest: Rest, topic: str, nodes: tuple[int, ...]) -> dict[str, Any]:
    """Of partition 0."""
    topics = rest.eventually(nodes, "GET", "/cluster/metadata").body["topics"]
    (found,) = [one for one in topics if one["name"] == topic]
    return dict(found["partitions"][0]["state"])
