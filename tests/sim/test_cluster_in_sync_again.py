"""A node that comes back is in sync as soon as it has everything and is let in, and does not wait until somebody happens to ask again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.node.cluster.membership import Membership

AWAY = "node-3"
OPENING_S = 1.0
SOON_S = 0.5  # far less than a leader waits before it proposes again what was refused


def test_a_node_that_catches_up_before_it_is_let_in_is_in_sync_as_soon_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = Membership.ready

    async def ready_late(membership: Membership) -> None:
        """As where there are other topics to open, or groups to read."""
        await asyncio.sleep(OPENING_S)
        await ready(membership)

    async def play(played: PlayedCluster) -> float:
        await played.create(num_partitions=4)
        host = played.cluster.hosts[AWAY]
        await host.crash(power_cut=False)
        await played.until(lambda: state(played) is NodeState.FENCED)
        host.start()
        await played.until(lambda: state(played) is NodeState.ALIVE)
        began = asyncio.get_running_loop().time()
        await played.until(lambda: are_all_in_sync(played))
        return asyncio.get_running_loop().time() - began

    monkeypatch.setattr(Membership, "ready", ready_late)
    assert in_cluster(play) < SOON_S


def state(played: PlayedCluster) -> NodeState:
    controller = played.cluster.controller()
    node = controller and controller.node and controller.node._metadata.catalog.node(AWAY)
    return node.state if node else NodeState.FENCED


def are_all_in_sync(played: PlayedCluster) -> bool:
    states = played.node("node-1")._metadata.catalog.partitions_of("orders")
    return all(len(state.in_sync) == 3 for state in states)
