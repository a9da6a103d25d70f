"""What a leader proposes of who is in sync, and what it makes of the controller's answer: it goes on waiting for whoever may have been
let in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from random import Random
from typing import cast

import pytest
from tests.support.catalogs import endpoints

from goqueue.core.catalog import CreateTopic, FenceNode, InSyncProposal, RegisterNode, UnfenceNode
from goqueue.core.cluster.draft import Draft
from goqueue.core.raft.config import RaftConfig
from goqueue.model.errors import TimedOut
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings
from goqueue.node.cluster.member import ClusterMember
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.config import ClusterConfig, DiskConfig
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.guard import Guard
from goqueue.node.ids import RandomIds
from goqueue.node.metadata import Metadata
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.replication.in_sync import InSyncKeeper, Place
from goqueue.node.replication.leadership import Leadership
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run

ORDERS = "orders", 0
LAG_MS = 1_000
FOREVER_MS = 10**9


class Leader:
    """Node 1, controller and leader of a partition with nodes 2, which is in sync, and 3, which has all that there is: ten records."""

    def __init__(self, loop: SimLoop) -> None:
        disk = SimDisk(Random(1), not_cached_rate=0.0, stall=loop.stall).mount()
        threads, clock, metrics = Threads(1), SimClock(loop), Metrics()
        opener = PartitionOpener(
            disk, threads, metrics, self._spawn, lambda _: None, sync_timeout_ms=10_000, is_solo=False
        )
        self.metadata = Metadata(Limits(), TopicSettings(), clock, 10_000)
        self.quorum = Quorum(
            RaftConfig("n1"),
            QuorumLog(disk, opener, threads, clock),
            self.metadata,
            lambda _: None,
            lambda _: 0,
            self._spawn,
            timeout_ms=10_000,
        )
        self.metadata.attach(self.quorum, None)
        watch = DiskWatch(disk, DiskConfig(), metrics)
        self.member = ClusterMember(
            ClusterConfig(),
            self.metadata,
            self.quorum,
            cast(PeerLinks, object()),
            TopicTable(),
            disk,
            threads,
            clock,
            RandomIds(),
            self._spawn,
            watch,
            Guard(Limits(), watch),
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.answers: list[Collection[Place] | None] = []  # None: it was lost
        self.loses_answer = False

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def lead(self) -> Leadership:
        """As the catalogue has it. Nobody tells this leadership of anything that is decided from here on, as while the node has not
        come to it yet."""
        await self.quorum.start(["n1"])
        incarnations = {"n1": self.member.membership.incarnation, "n2": "n2/1", "n3": "n3/1"}
        for name, incarnation in incarnations.items():
            await self.metadata.execute(RegisterNode(name, incarnation, endpoints(name), "", "1"))
            await self.metadata.execute(UnfenceNode(name, incarnation))
        await self.metadata.execute(FenceNode("n3", "n3/1"))
        await self.metadata.execute(CreateTopic("orders", 1, {}, assignments=[[1, 2, 3]]))
        await self.metadata.execute(UnfenceNode("n3", "n3/1"))
        self.member.replication.number = 1
        state = self.metadata.catalog.partition(*ORDERS)
        assert (state.leader, state.in_sync) == (1, (1, 2))
        leadership = Leadership(
            1,
            state,
            min_in_sync=2,
            now_ms=0,
            when_changed=lambda partition, followers, has_more: None,
            when_failed=lambda: None,
        )
        replicas = leadership.replicas
        replicas.add_log("orders", end=10, durable_end=10, high_watermark=0, now_ms=0)
        for follower in (2, 3):
            replicas.fetched(follower, "orders", 10, 1)
        self._spawn(
            InSyncKeeper(
                {ORDERS: leadership}, {2: FOREVER_MS, 3: FOREVER_MS}, self._propose, tuple, lag_ms_max=LAG_MS
            ).run()
        )
        return leadership

    async def _propose(self, proposals: list[InSyncProposal]) -> Collection[Place]:
        assert [proposal.in_sync for proposal in proposals] == [[1, 2, 3]]
        answer = await self.member._propose(proposals)
        self.answers.append(None if self.loses_answer else answer)
        if self.loses_answer:
            raise TimedOut("the controller has not answered; whether the change happens is not known")
        return answer

    async def until_asked(self, count: int) -> None:
        while len(self.answers) < count:  # noqa: ASYNC110 - nobody calls when it is
            await asyncio.sleep(0.1)


def write_more(leadership: Leadership) -> int:
    """Ten more records, which node 2 has and node 3 has not: up to where they are committed."""
    replicas = leadership.replicas
    replicas.appended("orders", 20)
    replicas.synced("orders", 20)
    replicas.fetched(2, "orders", 20, 2)
    return replicas.high_watermark("orders")


def test_a_proposal_that_was_accepted_before_and_is_stale_now_is_not_taken_for_refused() -> None:
    """No answer came, so it is proposed again, and dropped because the partition has changed: by that very proposal. Node 3 is in sync as
    far as the controller knows, and may be elected: nothing is committed that it does not have."""

    async def scenario(loop: SimLoop) -> None:
        leader = Leader(loop)
        leadership = await leader.lead()
        leader.loses_answer = True
        await leader.until_asked(1)
        assert leader.metadata.catalog.partition(*ORDERS).in_sync == (1, 2, 3)
        assert write_more(leadership) == 10
        leader.loses_answer = False
        await leader.until_asked(2)
        await asyncio.sleep(0.1)
        assert leadership.replicas.high_watermark("orders") == 10
        leadership.update(leader.metadata.catalog.partition(*ORDERS), min_in_sync=2)
        assert leadership.replicas.high_watermark("orders") == 10
        leadership.replicas.fetched(3, "orders", 20, 3)
        assert leadership.replicas.high_watermark("orders") == 20

    run(scenario, seed=1)


@pytest.mark.parametrize("is_older", [False, True])
def test_whoever_is_refused_for_sure_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, *, is_older: bool
) -> None:
    """The epoch has been counted up, or the controller is of a version that does not do that, and the partition is as it was when
    this was proposed: so nobody was let in."""

    async def scenario(loop: SimLoop) -> None:
        leader = Leader(loop)
        leadership = await leader.lead()
        await leader.metadata.execute(FenceNode("n3", "n3/1"))
        if is_older:
            monkeypatch.setattr(Draft, "count_up", lambda draft, topic, index: None)
        await leader.until_asked(1)
        await asyncio.sleep(0.1)
        state = leader.metadata.catalog.partition(*ORDERS)
        assert state.in_sync == (1, 2)
        assert state.epoch == leadership.replicas.state.epoch + (not is_older)
        assert write_more(leadership) == (20 if is_older else 10)
        leadership.update(state, min_in_sync=2)
        assert leadership.replicas.high_watermark("orders") == 20

    run(scenario, seed=1)


def test_what_a_process_proposes_that_the_controller_does_not_know_refuses_nothing() -> None:
    """What it proposed under the incarnation that is known may still be under way."""

    async def scenario(loop: SimLoop) -> None:
        leader = Leader(loop)
        leadership = await leader.lead()
        leader.member.membership.begin_again("the next")
        await leader.until_asked(1)
        await asyncio.sleep(0.1)
        assert leader.metadata.catalog.partition(*ORDERS) == leadership.replicas.state
        assert leader.answers == [set()]
        assert write_more(leadership) == 10

    run(scenario, seed=1)


def test_whoever_is_let_in_is_waited_for_before_the_node_has_come_to_it() -> None:
    async def scenario(loop: SimLoop) -> None:
        leader = Leader(loop)
        leadership = await leader.lead()
        await leader.until_asked(1)
        await asyncio.sleep(0.1)
        assert leader.metadata.catalog.partition(*ORDERS).in_sync == (1, 2, 3)
        assert write_more(leadership) == 10

    run(scenario, seed=1)


def test_proposal_that_nobody_answered_is_made_again_soon() -> None:
    """Clients wait where too few are in sync, and there is another controller long before somebody would count as lagging."""

    async def scenario(loop: SimLoop) -> None:
        leader = Leader(loop)
        await leader.lead()
        leader.loses_answer = True
        await leader.until_asked(1)
        asked_s = loop.time()
        await leader.until_asked(2)
        assert loop.time() - asked_s < LAG_MS / 1_000

    run(scenario, seed=1)
