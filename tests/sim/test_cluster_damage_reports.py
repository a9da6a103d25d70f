"""A node that has found damage says so before it gives up what is damaged: afterwards no start could tell, and others count on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.sim_clusters import ORDERS, PlayedCluster, in_cluster

from goqueue.core.catalog import AlterTopic
from goqueue.model.errors import DataCorrupt
from goqueue.node.cluster.membership import Membership
from goqueue.node.replication.replication import Replication
from goqueue.sim.cluster.disks import durable_batches
from goqueue.sim.cluster.host import SimHost
from goqueue.sim.cluster.readers import Fetched, fetch

VALUES = [f"v{number}" for number in range(6)]
DAMAGED = 2  # which of them
COMPACTS_AT_ONCE = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Told:
    """What one node does, in its order: it reports what is lost, and gives the partition its roles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, played: PlayedCluster, name: str) -> None:
        self.lost: list[list[tuple[str, int]]] = []
        self.damaged_when_counted_on: list[int] = []
        self._played, self._name = played, name
        join, assign = Membership.join, Replication.assign

        async def joined(
            membership: Membership, endpoints: Any, *, lost: list[tuple[str, int]], previous: list[str]
        ) -> Any:
            entry = await join(membership, endpoints, lost=lost, previous=previous)
            if lost and entry.name == name:
                self.lost.append(lost)
            return entry

        async def assigned(
            replication: Replication, place: tuple[str, int], held: Sequence[Any], state: Any, **least: Any
        ) -> None:
            number = int(name.removeprefix("node-"))
            if place == ORDERS and replication.number == number and state.leader != number:
                self._note(number, held[0].damaged_from)
            await assign(replication, place, held, state, **least)

        monkeypatch.setattr(Membership, "join", joined)
        monkeypatch.setattr(Replication, "assign", assigned)

    def _note(self, number: int, damaged_from: int | None) -> None:
        state = self._played.node(self._name)._metadata.catalog.partition("orders", 0)
        if damaged_from is not None and number in (*state.in_sync, *state.eligible):
            self.damaged_when_counted_on.append(damaged_from)


def rot(host: SimHost) -> None:
    size = len(durable_batches(host.disk, ORDERS)[0].data)
    host.disk.flip_bit("logs/orders/0/00000000000000000000.log", 8 * ((DAMAGED + 1) * size - 2))


async def filled(played: PlayedCluster, replication_factor: int) -> str:
    await played.create(replication_factor=replication_factor, config={"min.insync.replicas": "2"})
    leader = await played.leader()
    for value in VALUES:
        assert (await played.produce(leader, value))[0] == 0
    await played.until(lambda: not played.cluster.unsettled())
    return leader


def check_all_have_everything(played: PlayedCluster, count: int) -> None:
    for offset, value in enumerate(VALUES):
        assert len(played.cluster.holders(ORDERS, offset, (value,))) == count


def test_what_is_damaged_at_a_start_is_reported_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other replica has died, and this one is eligible."""

    async def play(played: PlayedCluster) -> None:
        leader = await filled(played, 2)
        name = next(one for one in played.cluster.names if one != leader and has_replica(played, one))
        host = played.cluster.hosts[name]
        await host.crash(power_cut=False)
        rot(host)
        told = Told(monkeypatch, played, name)
        host.start()
        await played.until(lambda: host.is_ready)
        await played.until(lambda: not played.cluster.unsettled())
        assert told.lost == [[tuple(ORDERS)]]
        assert not told.damaged_when_counted_on
        check_all_have_everything(played, 2)

    in_cluster(play)


def test_what_a_leader_has_met_alone_is_reported_before_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the last in sync, and is cut off when the eligible one comes back: whoever leads then takes it for whole."""

    async def play(played: PlayedCluster) -> None:
        leader = await filled(played, 2)
        name = next(one for one in played.cluster.names if one != leader and has_replica(played, one))
        other = played.cluster.hosts[name]
        await other.crash(power_cut=False)
        await played.until(lambda: state_of(played, leader).eligible == (int(name.removeprefix("node-")),))
        rot(played.cluster.hosts[leader])
        partition = played.node(leader)._table.any_partition("orders", 0)
        for segment in partition.log.segments:
            segment.release()
        epoch = state_of(played, leader).leader_epoch
        read = await fetch(
            played.client, leader, ORDERS, DAMAGED, epoch=epoch, wait_ms=0, bytes_max=1_000_000
        )
        assert not isinstance(read, Fetched)
        assert partition.damaged_from == DAMAGED
        told = Told(monkeypatch, played, leader)
        played.isolate(leader)
        other.start()
        await played.until(lambda: other.is_ready and state_of(played, name).leader == number_of(name))
        assert state_of(played, name).eligible == (number_of(leader),)
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        assert told.lost == [[tuple(ORDERS)]]
        assert not told.damaged_when_counted_on
        check_all_have_everything(played, 2)

    in_cluster(play)


def number_of(name: str) -> int:
    return int(name.removeprefix("node-"))


def state_of(played: PlayedCluster, name: str) -> Any:
    return played.node(name)._metadata.catalog.partition("orders", 0)


def has_replica(played: PlayedCluster, name: str) -> bool:
    return number_of(name) in state_of(played, name).replicas


def test_what_a_follower_finds_when_it_compacts_is_reported_once_and_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that the node would be let in again with the damage, and be taken for whole."""

    async def play(played: PlayedCluster) -> None:
        leader = await filled(played, 3)
        name = next(one for one in played.cluster.names if one != leader)
        node = played.node(name)
        await node._metadata.execute(AlterTopic("orders", COMPACTS_AT_ONCE))
        await played.until(lambda: not played.cluster.unsettled())
        partition = node._table.any_partition("orders", 0)
        await played.until(lambda: partition.log.high_watermark == partition.log.end)
        partition.log.roll(0)  # the newest segment is never compacted
        rot(played.cluster.hosts[name])
        for segment in partition.log.segments:
            segment.release()
        told = Told(monkeypatch, played, name)
        with pytest.raises(DataCorrupt):
            await node._housekeeping.apply_compaction(partition)
        assert partition.damaged_from == DAMAGED
        await played.until(lambda: partition.damaged_from is None)
        await played.until(lambda: not played.cluster.unsettled())
        await asyncio.sleep(5)
        assert told.lost == [[tuple(ORDERS)]]
        assert number_of(name) in state_of(played, leader).in_sync
        check_all_have_everything(played, 3)

    in_cluster(play)
