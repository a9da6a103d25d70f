"""A controller decides on what is so, also when whoever asked before has given up waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random

import pytest

from goqueue.core.catalog import NameCluster
from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import Message
from goqueue.model.cluster_errors import WrongCluster
from goqueue.model.errors import TimedOut
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.threads import Threads
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run

VOTERS = ("n1", "n2")
PATIENCE_MS = 200  # of whoever waits for a decision; much less than an election takes


class Member:
    """A voter with its disk and its copy of the metadata."""

    def __init__(self, loop: SimLoop, name: str, network: Network) -> None:
        disk = SimDisk(Random(1), not_cached_rate=0.0, stall=loop.stall).mount()
        threads = Threads(1)
        opener = PartitionOpener(
            disk, threads, Metrics(), network.spawn, lambda _: None, sync_timeout_ms=10_000, is_solo=False
        )
        clock = SimClock(loop)
        self.metadata = Metadata(Limits(), TopicSettings(), clock, PATIENCE_MS)
        self.quorum = Quorum(
            RaftConfig(name),
            QuorumLog(disk, opener, threads, clock),
            self.metadata,
            network.send,
            lambda _: 0,
            network.spawn,
            timeout_ms=PATIENCE_MS,
        )
        self.metadata.attach(self.quorum, None)


class Network:
    """Between two voters. What is held back arrives later, in order."""

    def __init__(self, loop: SimLoop) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.members = {name: Member(loop, name, self) for name in VOTERS}
        self.is_held = False
        self.moments: list[
            bool
        ] = []  # whether a leader was the controller when something was committed and not applied
        self._held: list[Message] = []

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def send(self, message: Message) -> None:
        if self.is_held:
            self._held.append(message)
        else:
            asyncio.get_running_loop().call_soon(self._deliver, message)

    def _deliver(self, message: Message) -> None:
        quorum = self.members[message.target].quorum
        was_active = quorum.is_active
        quorum.receive(message)
        if was_active and quorum.raft.commit_index > quorum.applied_index:
            self.moments.append(quorum.is_active)

    def let_go(self) -> None:
        self.is_held, held = False, self._held
        self._held = []
        for message in held:
            self.send(message)

    async def controller(self) -> Member:
        for member in self.members.values():
            await member.quorum.start(VOTERS)
        name = await self.members["n1"].quorum.until_led()
        leader = self.members[name]
        await leader.quorum.until_settled()
        return leader


def test_what_was_given_up_on_counts_for_the_next_decision() -> None:
    """A decision that is on its way may be committed at any moment. One that is made without it contradicts it: two leaders of one
    partition in one epoch, or two topics of one name."""

    async def scenario(loop: SimLoop) -> None:
        network = Network(loop)
        leader = await network.controller()
        network.is_held = True
        with pytest.raises(TimedOut, match="not known"):
            await leader.metadata.decide(NameCluster("first"))
        second = asyncio.ensure_future(leader.metadata.decide(NameCluster("second")))
        await asyncio.sleep(0)
        network.let_go()
        with pytest.raises(WrongCluster, match="belongs to cluster 'first'"):
            await second
        assert leader.metadata.catalog.cluster_id == "first"

    run(scenario, seed=1)


def test_without_a_majority_nothing_more_is_decided() -> None:
    async def scenario(loop: SimLoop) -> None:
        network = Network(loop)
        leader = await network.controller()
        network.is_held = True
        with pytest.raises(TimedOut, match="not known"):
            await leader.metadata.decide(NameCluster("first"))
        with pytest.raises(TimedOut, match="nothing was changed"):
            await leader.metadata.decide(NameCluster("second"))

    run(scenario, seed=1)


def test_a_controller_stays_one_between_a_commit_and_its_application() -> None:
    """Or else the heartbeats that come just then would not be heard."""

    async def scenario(loop: SimLoop) -> None:
        network = Network(loop)
        leader = await network.controller()
        await leader.metadata.decide(NameCluster("first"))
        assert network.moments
        assert all(network.moments)

    run(scenario, seed=1)
