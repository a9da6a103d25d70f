"""A leader that is cut off, in both directions or in one: while it lasts others are elected, voters fall and come back, and the old one stands
for election and takes itself for the leader of what it led. Then it heals, and nobody has to do anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.raft.raft import Raft
from goqueue.core.raft.states import Role
from goqueue.model.record import Producer
from goqueue.sim.cluster.disks import durable_batches
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import Part

UNKNOWN = 20  # NOT_ENOUGH_REPLICAS_AFTER_APPEND: it may come to be stored
LONG_POLLS_S = 0.6  # by then whatever waited at the leader when it was cut off has been answered
PATIENCE_S = 20.0
PRODUCER_ID = 77
NOT_LEADER = 6
RETRIED = (NOT_LEADER, 7, 19)  # it does not lead yet, is not sure of it, or has too few followers

Cut = Callable[[PlayedCluster, str, str], None]


def isolated(played: PlayedCluster, old: str, other: str) -> None:
    played.network.partition(old, other)


def deaf(played: PlayedCluster, old: str, other: str) -> None:
    """The others hear that it leads until it gives up; it does not hear that they follow, or elect another."""
    played.network.partition(other, old, one_way=True)


def mute(played: PlayedCluster, old: str, other: str) -> None:
    """It hears what they ask, and nothing that it answers or asks arrives."""
    played.network.partition(old, other, one_way=True)


class Writer:
    """An idempotent producer of one partition; `acked` is everything it may count on."""

    def __init__(self, played: PlayedCluster, part: Part) -> None:
        self.acked: list[str] = []
        self._played = played
        self._part = part

    async def write(self, value: str, names: list[str]) -> None:
        """Until it is acknowledged, each time by whom these have for the leader."""
        producer = Producer(PRODUCER_ID, 0, len(self.acked))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                leader = await new_leader(self._played, names, self._part)
                try:
                    error, _ = await self._played.produce(leader, value, part=self._part, producer=producer)
                except NoAnswer:  # by a connection to a life that is over
                    continue
                if error not in RETRIED:
                    break
                await asyncio.sleep(0.1)
        assert error == 0
        self.acked.append(value)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("cut", [isolated, deaf, mute])
def test_a_cut_heals_by_itself_after_votes_and_restarts(cut: Cut, size: int) -> None:
    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=size, replication_factor=size, config={"min.insync.replicas": "2"})
        old = ruling(played, played.cluster.names) or ""
        others = [name for name in played.cluster.names if name != old]
        part = led_by(played, old)
        writer = Writer(played, part)
        await writer.write("before", [old])
        for other in others:
            cut(played, old, other)
        await asyncio.sleep(LONG_POLLS_S)
        refused = asyncio.create_task(played.produce(old, "refused", part=part))

        await until_ruled(played, others)
        await writer.write("elected", others)
        assert (await refused)[0] == UNKNOWN
        voter = next(name for name in others if name != ruling(played, others))
        for name in (voter, ruling(played, others) or ""):
            await restart_keeping_its_vote(played, name)
            await until_ruled(played, others)
            await writer.write(f"{name} fell", others)

        assert raft(played, old).role is Role.PRE_CANDIDATE, "it stands, and nobody answers"
        assert led_by(played, old) == part, "as far as it knows"
        assert on_disk(played, old, part) == ["before", "refused"]
        term = raft(played, others[0]).term
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())
        assert raft(played, old).term == term, "whoever stood in vain unseats nobody"
        for name in played.cluster.names:
            assert on_disk(played, name, part) == writer.acked
        await writer.write("healed", played.cluster.names)

    in_cluster(play, size=size)


def raft(played: PlayedCluster, name: str) -> Raft:
    return played.node(name)._quorum.raft


def ruling(played: PlayedCluster, names: list[str]) -> str | None:
    hosts = [played.cluster.hosts[name] for name in names]
    found = [host.name for host in hosts if host.is_ready and played.node(host.name)._quorum.is_active]
    return found[0] if len(found) == 1 else None


async def until_ruled(played: PlayedCluster, names: list[str]) -> None:
    await played.until(lambda: ruling(played, names) is not None)


def led_by(played: PlayedCluster, name: str) -> Part:
    number = played.node(name).directory.number
    states = played.node(name)._metadata.catalog.partitions_of("orders")
    return Part("orders", next(index for index, state in enumerate(states) if state.leader == number))


async def new_leader(played: PlayedCluster, names: list[str], part: Part) -> str:
    """As whoever rules among them has decided, once as many replicas are in sync as have to be."""

    def found() -> str | None:
        controller = ruling(played, names)
        if controller is None:
            return None
        state = played.node(controller)._metadata.catalog.partitions.get(*part)
        name = f"node-{state.leader}"
        return name if name in names and played.cluster.hosts[name].is_ready else None

    await played.until(lambda: found() is not None)
    return found() or ""


async def restart_keeping_its_vote(played: PlayedCluster, name: str) -> None:
    before = raft(played, name)
    vote = before.term, before._vote
    assert vote[1] is not None
    host = played.cluster.hosts[name]
    await host.crash(power_cut=True)
    host.start()
    await played.until(lambda: host.node is not None and host.node._quorum._raft is not None)
    now = raft(played, name)
    assert (now.term, now._vote) == vote or now.term > vote[0]


def on_disk(played: PlayedCluster, name: str, part: Part) -> list[str]:
    batches = durable_batches(played.cluster.hosts[name].disk, part)
    return [value for batch in batches.values() for value in batch.values.values()]
