"""What a node notes in its folder comes to be what is so: also where a write fails, or something changes while it is under way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import msgspec
import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.catalog import Event
from goqueue.core.cluster.events import NodeRegistered
from goqueue.core.cluster.nodes import Endpoints
from goqueue.log.disk import Disk, replace_file
from goqueue.node.cluster import identity as identity_module
from goqueue.node.cluster.identity import Identity
from goqueue.node.cluster.member import ClusterMember
from goqueue.node.metadata import Metadata
from goqueue.sim.cluster.host import SimHost


class Refusals:
    """While they are in force, no node.json can be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_in_force = False
        monkeypatch.setattr(identity_module, "replace_file", self._write)

    def _write(self, disk: Disk, path: str, content: bytes) -> None:
        if self.are_in_force:
            raise OSError(errno.ENOSPC, "no space left on device")
        replace_file(disk, path, content)


def test_a_process_that_could_not_note_itself_reports_one_partition_and_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(played: PlayedCluster) -> None:
        refusals = Refusals(monkeypatch)
        await played.create(replication_factor=3, num_partitions=2, config={"min.insync.replicas": "3"})
        host, metadata = one_and_what_the_controller_knows(played)
        refusals.are_in_force = True
        await started_again(played, host)
        counted: list[list[int]] = []

        def note(events: Sequence[Event]) -> None:
            number = member(host).replication.number
            states = [metadata.catalog.partition("orders", index) for index in range(2)]
            counted.append([number in (*state.in_sync, *state.eligible) for state in states])

        metadata.when_applied(note)
        entry = metadata.catalog.node(host.name)
        assert entry is not None
        await member(host).report_lost(entry.endpoints, [("orders", 0)])
        assert counted
        assert not all(first for first, _ in counted)
        assert all(second for _, second in counted)

    in_cluster(play)


@pytest.mark.parametrize("chance", ["the next write", "space on the disk", "the end"])
def test_what_a_full_disk_did_not_take_is_noted_when_there_is_a_chance(
    monkeypatch: pytest.MonkeyPatch, chance: str
) -> None:
    """Or else the next process would be taken for one whose folder was put back."""

    async def play(played: PlayedCluster) -> None:
        refusals = Refusals(monkeypatch)
        host, _ = one_and_what_the_controller_knows(played)
        refusals.are_in_force = True
        await started_again(played, host)
        incarnation = member(host).membership.incarnation
        assert incarnation not in saved(host).incarnations
        refusals.are_in_force = False
        if chance == "the next write":
            move_stranger(host, "x:1")
        elif chance == "space on the disk":
            host.disk.capacity_bytes = 1
            await asyncio.sleep(5)
            host.disk.capacity_bytes = None
        else:
            assert await host.stop()
        await asyncio.sleep(5)
        assert saved(host).incarnations[-1] == incarnation

    in_cluster(play)


def test_what_moves_and_comes_back_within_one_write_is_noted_where_it_is() -> None:
    async def play(played: PlayedCluster) -> None:
        host, _ = one_and_what_the_controller_knows(played)
        for addresses in (["x:1"], ["x:2", "x:1"]):
            for address in addresses:
                move_stranger(host, address)
                await asyncio.sleep(0)
            await asyncio.sleep(1)
        assert saved(host).addresses == {"stranger": "x:1"}

    in_cluster(play)


def one_and_what_the_controller_knows(played: PlayedCluster) -> tuple[SimHost, Metadata]:
    controller = played.cluster.controller()
    assert controller is not None
    name = next(each for each in played.cluster.names if each != controller.name)
    return played.cluster.hosts[name], played.node(controller.name)._metadata


async def started_again(played: PlayedCluster, host: SimHost) -> None:
    await host.crash(power_cut=False)
    host.start()
    await played.until(lambda: not played.cluster.unsettled())


def member(host: SimHost) -> ClusterMember:
    assert host.node is not None
    assert host.node.cluster is not None
    return host.node.cluster


def saved(host: SimHost) -> Identity:
    return msgspec.json.decode(host.disk.snapshot()["node.json"], type=Identity)


def move_stranger(host: SimHost, address: str) -> None:
    """A node that nobody has configured, as the log has it."""
    assert host.node is not None
    event = NodeRegistered("stranger", 9, "s", Endpoints("x:3", "x:4", address), "", "1")
    host.node._metadata.catalog.apply(event)
    member(host)._note_nodes([event])
