"""How far a node had come counts for the process that said so. The next one may be on a disk that has lost it."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest
from msgspec import structs
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.api.kafka.call import Call, Later
from goqueue.api.kafka.context import code_of
from goqueue.api.kafka.replica_fetch import ReplicaFetchApi
from goqueue.core.cluster.events import NodeRegistered
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.model.errors import FetchSessionNotFound
from goqueue.node.cluster.member import ClusterMember
from goqueue.node.cluster.membership import Membership
from goqueue.node.cluster.ports import ReplicaRound, ReplicaWant
from goqueue.node.cluster.secret import Secret
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.node import Node
from goqueue.node.replication.leadership import Leadership
from goqueue.peer.dialling import Credentials
from goqueue.peer.fetching import VERSION, fetch_request
from goqueue.peer.links import PeerLinks
from goqueue.sim.cluster.host import CLUSTER_PORT, SECRET
from goqueue.sim.ids import SimIds
from goqueue.sim.kafka.history import Part
from goqueue.wire.codec import Malformed

VALUES = ("a", "b", "c")
LOOK_S = 0.05
LONG_S = 15.0  # much more than a leader waits before it proposes again
SOON_S = 0.5


def test_a_node_is_not_let_in_for_what_the_process_before_had_on_a_disk_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first process catches up while it is fenced, and dies before it is let in. The leader does not hear the second one, which the
    controller lets in; if it proposed that one it would be elected, with nothing."""
    ready, held = Membership.ready, set[str]()

    async def ready_unless_held(membership: Membership) -> None:
        if membership._quorum.name in held:
            await asyncio.Event().wait()
        await ready(membership)

    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        leader, follower = (name for name in played.cluster.names if name != controller.name)
        part = await create_led_by(played, leader)
        for value in VALUES:
            assert (await played.produce(leader, value, part=part))[0] == 0
        number, host = number_of(played, follower), played.cluster.hosts[follower]

        await host.crash(power_cut=False)
        held.add(follower)
        host.start()
        began_ms = monotonic_ms()
        heard_ms = member_of(played, leader).replication.server.heard_ms
        replicas = leadership_of(played, leader, part).replicas
        await played.until(lambda: heard_ms[number] > began_ms and replicas.may_join(number))
        assert number not in state_of(played, part).in_sync

        await host.crash(power_cut=False)
        held.clear()
        disk = host.disk.mount()
        disk.remove_tree(f"logs/{part.topic}")
        disk.sync_dir("logs")
        played.network.partition(follower, leader)
        host.start()
        await played.until(lambda: node_state(played, follower) is NodeState.ALIVE)
        until_s = played.loop.time() + LONG_S
        while played.loop.time() < until_s:  # it would be taken out again, because it lags
            assert number not in state_of(played, part).in_sync
            await asyncio.sleep(LOOK_S)

        await played.cluster.hosts[leader].crash(power_cut=False)
        await played.until(lambda: state_of(played, part).leader == number_of(played, controller.name))
        played.heal()
        played.cluster.hosts[leader].start()
        await played.until(lambda: not played.cluster.unsettled())
        await played.until(lambda: len(state_of(played, part).in_sync) == 3)
        for offset, value in enumerate(VALUES):
            assert len(played.cluster.holders(part, offset, (value,))) == 3

    monkeypatch.setattr(Membership, "ready", ready_unless_held)
    in_cluster(play)


def test_what_a_process_has_sent_does_not_count_once_the_next_one_has_joined() -> None:
    """It lies in the leader's socket until then, or the process stood still and goes on; the new one may have lost its disk."""

    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        leader, follower = (name for name in played.cluster.names if name != controller.name)
        part = await create_led_by(played, leader)
        for value in VALUES:
            assert (await played.produce(leader, value, part=part))[0] == 0
        number, replicas = number_of(played, follower), leadership_of(played, leader, part).replicas
        directory = played.node(leader).directory
        before = directory.incarnation_of(follower)
        links = links_in_the_name_of(played, follower, before)
        await links.fetch(leader, ReplicaRound(0, []), wait_ms=1, bytes_max=1)  # it has proven who it is

        await played.cluster.hosts[follower].crash(power_cut=False)
        played.network.partition(follower, leader)  # the new process joins, and does not reach the leader
        played.cluster.hosts[follower].start()
        await played.until(lambda: directory.incarnation_of(follower) != before)
        epoch = state_of(played, part).leader_epoch
        everything = ReplicaRound(0, [ReplicaWant(*part, len(VALUES), epoch, epoch, 0, 1)])
        for _ in range(2):  # it connects anew for the second one
            with pytest.raises(PeerUnreachable):
                await links.fetch(leader, everything, wait_ms=1, bytes_max=1)
            assert replicas.lags()[number] == len(VALUES)
        await links.close()
        now = member_of(played, follower).membership.incarnation
        for who in (now, None):  # None: a version that does not say it
            await admit(links_in_the_name_of(played, follower, who), leader, everything)
            assert replicas.lags()[number] == 0
            member_of(played, leader).replication.note_started(number)
            assert replicas.lags()[number] == len(VALUES)

    in_cluster(play)


def test_a_request_that_was_taken_does_not_count_where_the_next_process_joins_before_it_is_served() -> None:
    """Only a turn of the loop is between the two."""

    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        leader, follower = (name for name in played.cluster.names if name != controller.name)
        part = await create_led_by(played, leader)
        for value in VALUES:
            assert (await played.produce(leader, value, part=part))[0] == 0
        node, number = played.node(leader), number_of(played, follower)
        replicas, epoch = leadership_of(played, leader, part).replicas, state_of(played, part).leader_epoch
        call = call_of(follower, node.directory.incarnation_of(follower))
        everything = ReplicaRound(0, [ReplicaWant(*part, len(VALUES), epoch, epoch, 0, 1)])
        answer = await ReplicaFetchApi(node).fetch(
            call, fetch_request(everything, replica=number, wait_ms=1, bytes_max=1)
        )
        assert isinstance(answer, Later)
        played.network.partition(follower, leader)
        event = structs.replace(registered(node, follower), incarnation="the next")
        node._metadata.catalog.apply(event)
        member_of(played, leader).replication.note_started(number)
        reply: Any = await answer.answer
        assert reply.error_code == code_of(FetchSessionNotFound(""))
        assert replicas.lags()[number] == len(VALUES)
        with pytest.raises(Malformed):
            await ReplicaFetchApi(node).fetch(call, everything)

    in_cluster(play)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_follower_whose_session_is_ended_says_soon_and_quietly_where_it_is(
    caplog: pytest.LogCaptureFixture, *, is_restored: bool
) -> None:
    """Its process may have begun the session before the leader heard that it has started; and where the catalogue is replaced as a whole,
    nobody may have started at all."""

    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        leader, follower = (name for name in played.cluster.names if name != controller.name)
        part = await create_led_by(played, leader)
        for value in VALUES:
            assert (await played.produce(leader, value, part=part))[0] == 0
        await asyncio.sleep(5)
        number, before = number_of(played, follower), state_of(played, part)
        replicas = leadership_of(played, leader, part).replicas
        assert number in replicas.readable_at("orders", 0)

        caplog.clear()
        with caplog.at_level(logging.INFO):
            if is_restored:
                metadata = played.node(leader)._metadata
                metadata.restore(0, metadata.snapshot())
            else:
                member_of(played, leader).replication.note_started(number)
            assert number not in replicas.readable_at("orders", 0)
            await asyncio.sleep(SOON_S)
        assert number in replicas.readable_at("orders", 0)
        assert [record for record in caplog.records if record.name.startswith("goqueue.node.replic")] == []
        assert state_of(played, part) == before

    in_cluster(play)


async def create_led_by(played: PlayedCluster, leader: str) -> Part:
    await played.create(replication_factor=3, num_partitions=3, config={"min.insync.replicas": "2"})
    number = number_of(played, leader)
    states = played.node(leader)._metadata.catalog.partitions_of("orders")
    return next(Part("orders", index) for index, state in enumerate(states) if state.leader == number)


def member_of(played: PlayedCluster, name: str) -> ClusterMember:
    member = played.node(name).cluster
    assert member is not None
    return member


async def admit(links: PeerLinks, leader: str, round: ReplicaRound) -> None:
    await links.fetch(leader, round, wait_ms=1, bytes_max=1)
    await links.close()


def call_of(name: str, incarnation: str | None) -> Call:
    call = Call("fetch", VERSION, 1, name, name, peer=name)
    call.identity.peer, call.identity.incarnation = name, incarnation
    return call


def registered(node: Node, name: str) -> NodeRegistered:
    entry = node._metadata.catalog.node(name)
    assert entry is not None
    return NodeRegistered(name, entry.number, entry.incarnation, entry.endpoints, entry.rack, entry.version)


def links_in_the_name_of(played: PlayedCluster, name: str, incarnation: str | None) -> PeerLinks:
    """What the process itself has, with connections that its end does not end."""
    cluster_id = played.node(name).directory.cluster_id
    credentials = Credentials(
        name,
        lambda: cluster_id,
        lambda: incarnation,
        Secret(SECRET),
        played.cluster.hosts[name].clock,
        SimIds(Random(9)),
    )
    number = number_of(played, name)
    return PeerLinks(
        credentials,
        number=lambda: number,
        address_of=lambda target: (target, CLUSTER_PORT),
        chance=Random(10).random,
    )


def number_of(played: PlayedCluster, name: str) -> int:
    return member_of(played, name).replication.number


def leadership_of(played: PlayedCluster, name: str, part: Part) -> Leadership:
    leadership = member_of(played, name).replication.leadership(*part)
    assert leadership is not None
    return leadership


def state_of(played: PlayedCluster, part: Part) -> PartitionState:
    controller = played.cluster.controller()
    assert controller is not None
    assert controller.node is not None
    return controller.node._metadata.catalog.partition(*part)


def node_state(played: PlayedCluster, name: str) -> NodeState:
    controller = played.cluster.controller()
    assert controller is not None
    assert controller.node is not None
    node = controller.node._metadata.catalog.node(name)
    assert node is not None
    return node.state
