"""What every node shows of its cluster at `/metrics` moves with what happens to the cluster, and is left out where it is not known."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.core import CollectorRegistry
from tests.support.nodes import in_one_life
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.catalog import ReassignPartitions
from goqueue.node.node import Node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"


def shown(node: Node, name: str, **labels: str) -> float | None:
    return node.metrics.registry.get_sample_value(f"goqueue_cluster_{name}", labels)


def of_all(played: PlayedCluster, name: str, **labels: str) -> list[float | None]:
    return [shown(played.node(each), name, **labels) for each in played.cluster.names]


def controller_of(played: PlayedCluster) -> str:
    found = played.cluster.controller()
    assert found is not None
    return found.name


def names(registry: CollectorRegistry) -> set[str]:
    return {family.name for family in registry.collect() if family.name.startswith("goqueue_cluster_")}


def test_a_broker_alone_shows_none_of_it() -> None:
    async def life(node: Node) -> None:
        assert names(node.metrics.registry) == set()

    in_one_life(life)


def test_the_page_about_clusters_says_what_to_watch() -> None:
    async def play(played: PlayedCluster) -> set[str]:
        return names(played.node(controller_of(played)).metrics.registry)

    page = PAGE.read_text()
    told = in_cluster(play)
    assert "goqueue_cluster_voters_not_counting" in told
    assert [name for name in told if f"`{name}`" not in page and f"`{name}_total`" not in page] == []


def test_a_cluster_that_is_well_shows_who_rules_leads_and_follows() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=4, replication_factor=2)
        controller = controller_of(played)
        assert of_all(played, "is_controller").count(0) == 2
        assert shown(played.node(controller), "is_controller") == 1
        assert len(set(of_all(played, "term"))) == 1
        assert shown(played.node(controller), "elections_won_total") == 1
        node = played.node(controller)
        index = shown(node, "metadata_applied_index")
        assert index == shown(node, "metadata_committed_index") == node._quorum.applied_index > 0
        assert shown(node, "nodes", status="alive") == 3
        assert shown(node, "voters_not_counting") == 0
        assert of_all(played, "voters_not_counting").count(None) == 2  # the others cannot know
        assert of_all(played, "partitions_without_leader") == [0, 0, 0]
        assert of_all(played, "partitions_short_of_replicas") == [0, 0, 0]
        for name in played.cluster.names:
            table = played.node(name)._metadata.catalog.partitions
            number = played.node(name).directory.number
            led = len(table.led_by(number))
            assert shown(played.node(name), "led_partitions") == led
            assert shown(played.node(name), "followed_partitions") == len(table.held_by(number)) - led
        lags = [lag for lag in of_all(played, "replica_lag_seconds") if lag is not None]
        assert len(lags) == 3
        assert all(0 <= lag < 1 for lag in lags)

    in_cluster(play)


def test_what_is_replicated_and_carried_to_other_nodes_is_counted() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        leader = await played.leader()
        asked, other = (name for name in played.cluster.names if name != leader)
        before = {
            name: (
                shown(played.node(name), "replication_sent_bytes_total") or 0,
                shown(played.node(name), "replication_taken_bytes_total") or 0,
            )
            for name in played.cluster.names
        }
        forwarded = of_all(played, "forwarded_requests_total")
        body = {"messages": [{"value": "x" * 500}]}
        answer = await played.rest(asked, "POST", "/topics/orders/messages", body)
        assert answer.status == 200, answer
        for name, count in zip(played.cluster.names, forwarded, strict=True):
            more = (shown(played.node(name), "forwarded_requests_total") or 0) - (count or 0)
            assert more == (1 if name == asked else 0)

        def gained(name: str, counter: str, at: int) -> float:
            return (shown(played.node(name), counter) or 0) - before[name][at]

        sent = gained(leader, "replication_sent_bytes_total", 0)
        taken = [gained(name, "replication_taken_bytes_total", 1) for name in (asked, other)]
        assert all(each > 500 for each in taken)  # what is acknowledged is there
        assert sent == sum(taken)

    in_cluster(play)


def test_a_node_that_dies_and_comes_back_moves_what_is_to_be_watched() -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=6, replication_factor=3)
        await played.create("alone", replication_factor=1)
        controller = controller_of(played)
        dead = next(name for name in played.cluster.names if name != controller)
        node = played.node(controller)
        await played.node(controller)._metadata.execute(
            ReassignPartitions([("alone", 0, [played.node(dead).directory.number])])
        )
        await played.until(lambda: not played.cluster.unsettled())
        await played.cluster.hosts[dead].crash(power_cut=False)
        await played.until(lambda: shown(node, "nodes", status="suspect") == 1)
        assert shown(node, "nodes_fenced_total") == 0
        await played.until(lambda: shown(node, "nodes", status="dead") == 1)
        await played.until(lambda: shown(node, "nodes_fenced_total") == 1)
        assert shown(node, "nodes", status="alive") == 2
        await played.until(lambda: shown(node, "voters_not_counting") == 1)
        assert shown(node, "partitions_without_leader") == 1
        await played.until(lambda: (shown(node, "partitions_short_of_replicas") or 0) >= 6)
        await played.until(lambda: (shown(node, "in_sync_shrinks_total") or 0) >= 1)
        assert shown(node, "in_sync_expands_total") == 0
        await played.until(lambda: (shown(node, "replica_lag_seconds") or 0) > 3)
        played.cluster.hosts[dead].start()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: (shown(node, "in_sync_expands_total") or 0) >= 1)
        assert shown(node, "partitions_short_of_replicas") == shown(node, "partitions_without_leader") == 0
        await played.until(lambda: (shown(node, "replica_lag_seconds") or 0) < 1)
        assert shown(node, "nodes", status="alive") == 3

    in_cluster(play)


def test_the_one_who_takes_over_has_won_an_election() -> None:
    async def play(played: PlayedCluster) -> None:
        controller = controller_of(played)
        others = [name for name in played.cluster.names if name != controller]
        term = shown(played.node(controller), "term") or 0
        won = sum(shown(played.node(name), "elections_won_total") or 0 for name in others)
        await played.cluster.hosts[controller].crash(power_cut=False)

        def is_led() -> bool:
            return sum(shown(played.node(name), "is_controller") or 0 for name in others) == 1

        await played.until(is_led)
        assert sum(shown(played.node(name), "elections_won_total") or 0 for name in others) > won
        assert all((shown(played.node(name), "term") or 0) > term for name in others)

    in_cluster(play)


def test_what_moves_and_what_waits_for_it_is_shown() -> None:
    async def play(played: PlayedCluster) -> None:
        node = played.node(controller_of(played))
        target = next(name for name in played.cluster.names if name != node.config.node_id)
        others = [played.node(name).directory.number for name in played.cluster.names if name != target]
        await played.create(num_partitions=2, replication_factor=2)
        both = ReassignPartitions([("orders", index, others) for index in (0, 1)])
        await node._metadata.execute(both)
        await played.until(lambda: not played.cluster.unsettled())
        played.isolate(target)  # nothing is copied there, and for a moment nobody knows that it is away
        plan = [{"topic": "orders", "partition": index, "replicas": [target]} for index in (0, 1)]
        made = await played.rest(
            node.config.node_id, "POST", "/admin/reassignment", {"plan": plan, "parallel": 1}
        )
        assert made.status < 300, made
        await played.until(lambda: shown(node, "moving_partitions") == 1)
        assert shown(node, "waiting_moves") == 1
        played.heal()
        await played.until(lambda: shown(node, "moving_partitions") == shown(node, "waiting_moves") == 0)

    in_cluster(play)
