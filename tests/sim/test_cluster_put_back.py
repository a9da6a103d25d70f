"""A node comes back on an older state of its disk: whole, and without what it had acknowledged since."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.node.cluster.identity import Identity
from goqueue.sim.kafka.history import Part

BEFORE, AFTER = ("a", "b"), ("c", "d")
LONG_S = 10.0  # much more than an election takes
METADATA = "logs/__cluster_metadata"


@pytest.mark.parametrize("is_of_the_last", [False, True])
def test_a_disk_that_was_put_back_is_not_counted_on(*, is_of_the_last: bool) -> None:
    """It was one of the last two in sync and dies, and the other one dies when it has registered. Nobody may lead before that other one
    is back. The metadata is not put back with the rest, as docs/cluster.md has it; `is_of_the_last`: the copy was made of the process that
    was the last to register, while it ran."""

    async def play(played: PlayedCluster) -> None:
        part, (leader, third, restored) = await partition_without_controller(played)
        hosts = played.cluster.hosts
        number = number_of(restored)
        for value in BEFORE:
            assert (await played.produce(leader, value, part=part))[0] == 0
        if is_of_the_last:
            copy = deepcopy(hosts[restored].disk.platter)
        else:
            await hosts[restored].crash(power_cut=False)
            copy = deepcopy(hosts[restored].disk.platter)
            hosts[restored].start()
            await played.until(lambda: len(state_of(played, part).in_sync) == 3)

        played.network.partition(third, leader)  # it votes, and falls behind
        await played.until(lambda: len(state_of(played, part).in_sync) == 2)
        for value in AFTER:
            assert (await played.produce(leader, value, part=part))[0] == 0
        before = incarnation_of(played, restored)
        await hosts[restored].crash(power_cut=False)
        disk = hosts[restored].disk
        disk.wipe()
        disk.platter = copy
        disk.mount().remove_tree(METADATA)
        played.network.partition(restored, leader)  # it registers, and catches up with nothing
        hosts[restored].start()
        await played.until(lambda: incarnation_of(played, restored) != before)
        await played.until(lambda: node_state(played, restored) is NodeState.ALIVE)
        assert state_of(played, part).in_sync == (number_of(leader),)
        assert state_of(played, part).eligible == ()

        await hosts[leader].crash(power_cut=False)
        await played.until(lambda: node_state(played, leader) is NodeState.FENCED)
        until_s = played.loop.time() + LONG_S
        while played.loop.time() < until_s:
            assert state_of(played, part).leader == NO_LEADER
            assert number not in state_of(played, part).in_sync
            await asyncio.sleep(0.1)
        played.heal()
        hosts[leader].start()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: len(state_of(played, part).in_sync) == 3)
        for offset, value in enumerate(BEFORE + AFTER):
            assert len(played.cluster.holders(part, offset, (value,))) == 3

    in_cluster(play, size=5)


def test_a_disk_that_is_as_it_was_counts_however_often_its_process_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it dies after it has registered, and before it has noted that."""

    async def play(played: PlayedCluster) -> None:
        monkeypatch.setattr(Identity, "joined", lambda identity, incarnation: identity)
        part, (leader, third, again) = await partition_without_controller(played)
        hosts = played.cluster.hosts
        assert (await played.produce(leader, "a", part=part))[0] == 0
        await hosts[third].crash(power_cut=False)
        await played.until(lambda: len(state_of(played, part).in_sync) == 2)
        played.network.partition(again, leader)
        known = [incarnation_of(played, again)]
        for _ in range(3):
            await hosts[again].crash(power_cut=True)
            hosts[again].start()
            await played.until(lambda: incarnation_of(played, again) not in known)
            known.append(incarnation_of(played, again))
            assert state_of(played, part).eligible == (number_of(again),)

    in_cluster(play, size=5)


async def partition_without_controller(played: PlayedCluster) -> tuple[Part, list[str]]:
    """Its replicas: the leader comes first."""
    await played.create(replication_factor=3, num_partitions=10, config={"min.insync.replicas": "2"})
    controller = played.cluster.controller()
    assert controller is not None
    assert controller.node is not None
    states = controller.node._metadata.catalog.partitions_of("orders")
    own = number_of(controller.name)
    index, state = next((at, one) for at, one in enumerate(states) if own not in one.replicas)
    others = [number for number in state.replicas if number != state.leader]
    return Part("orders", index), [f"node-{number}" for number in (state.leader, *others)]


def number_of(name: str) -> int:
    return int(name.removeprefix("node-"))


def state_of(played: PlayedCluster, part: Part) -> PartitionState:
    controller = played.cluster.controller()
    assert controller is not None
    assert controller.node is not None
    return controller.node._metadata.catalog.partition(*part)


def node_state(played: PlayedCluster, name: str) -> NodeState | None:
    controller = played.cluster.controller()
    if controller is None or controller.node is None:
        return None
    node = controller.node._metadata.catalog.node(name)
    return None if node is None else node.state


def incarnation_of(played: PlayedCluster, name: str) -> str | None:
    controller = played.cluster.controller()
    assert controller is not None
    assert controller.node is not None
    return controller.node.directory.incarnation_of(name)
