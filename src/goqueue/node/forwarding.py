"""Where a request belongs in a cluster, and how it gets there.

A client may talk to any node. What another node has to answer is carried to it, once: who was asked by a node answers itself or
says that it is not the one, and nothing has been done then. So whoever asked looks again, for as long as it has patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.model.cluster_errors import CoordinationUnknown, NotLeader
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError, TimedOut
from goqueue.node.cluster.ports import Answer
from goqueue.node.coordinators import CoordinatorKind, Coordinators
from goqueue.node.directory import Directory
from goqueue.node.metadata import Metadata

T = TypeVar("T")

PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.05
# With these a node says that it did nothing: another is the right one, now or soon.
ELSEWHERE: Final = frozenset(
    {
        Code.NOT_LEADER,
        Code.HOME_UNDECIDED,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_LOADING,
        Code.PEER_UNREACHABLE,
    }
)


class Forwarder(Protocol):
    async def forward(
        self,
        target: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
    ) -> Answer:
        """A request as a client sent it, `path` with its query. Raises `PeerUnreachable` where nothing was sent, and
        `TimedOut` where it was and no answer came: then what became of it is not known. Whoever stops waiting hangs up."""


class OfPartition(NamedTuple):
    """For the leader."""

    topic: str
    partition: int


class OfGroup(NamedTuple):
    """For the coordinator."""

    group: str


class OfTransaction(NamedTuple):
    """For the coordinator."""

    id: str


Belonging = OfPartition | OfGroup | OfTransaction


class Elsewhere(Exception):
    """A node has answered that it is not the right one."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Forwarding:
    def __init__(
        self, directory: Directory, metadata: Metadata, coordinators: Coordinators, forwarder: Forwarder
    ) -> None:
        self.forwarder = forwarder
        self._directory = directory
        self._metadata = metadata
        self._coordinators = coordinators

    # ---------------------------------------------------------------- where

    def leads_all(self, topic: str) -> bool:
        """Whether all that concerns the topic is on this node; also where there is none of that name."""
        if self._metadata.catalog.find(topic) is None:
            return True
        number = self._directory.number
        return all(state.leader == number for state in self._metadata.catalog.partitions_of(topic))

    def leader_of(self, topic: str, partition: int) -> str | None:
        """The node's name; None where it is this one, which is also who refuses what does not exist."""
        if self._metadata.catalog.find(topic) is None:
            return None
        states = self._metadata.catalog.partitions_of(topic)
        if not 0 <= partition < len(states):
            return None
        return self._name(states[partition].leader, topic, partition)

    def leaders_of(self, topic: str) -> list[str | None]:
        """Of its partitions, in order; None is this node."""
        if self._metadata.catalog.find(topic) is None:
            return []
        states = self._metadata.catalog.partitions_of(topic)
        return [self._name(state.leader, topic, index) for index, state in enumerate(states)]

    def parts_of(self, topic: str | None) -> dict[str | None, list[int]]:
        """Whom to ask about the whole topic, and for which partitions, this node first; about no topic, all nodes. Where
        there is no such topic this node says so."""
        if topic is None:
            return {None: [], **{name: [] for name in self.others()}}
        leaders = self.leaders_of(topic)
        found: dict[str | None, list[int]] = {None: []} if None in leaders or not leaders else {}
        for index, leader in enumerate(leaders):
            found.setdefault(leader, []).append(index)
        return found

    def _name(self, leader: int, topic: str, partition: int) -> str | None:
        if leader == self._directory.number:
            return None
        name = "" if leader == NO_LEADER else self._directory.name_of(leader)
        if not name:
            raise NotLeader(topic, partition)
        return name

    def others(self) -> list[str]:
        """All nodes that are there, but this one."""
        catalog, own = self._metadata.catalog, self._directory.number
        return [
            node.name for node in catalog.nodes() if node.number != own and node.state is not NodeState.FENCED
        ]

    def check_leads(self, topic: str, partition: int) -> None:
        """Raises NotLeader where another node leads it."""
        leader = self.leader_of(topic, partition)
        if leader is not None:
            raise NotLeader(topic, partition, self._directory.number_of(leader))

    async def find(self, belonging: Belonging) -> str | None:
        """The node's name; None where it is this one."""
        match belonging:
            case OfPartition(topic, partition):
                return self.leader_of(topic, partition)
            case OfGroup(group):
                number = await self._coordinators.find(CoordinatorKind.GROUP, group)
            case OfTransaction(id):
                number = await self._coordinators.find(CoordinatorKind.TRANSACTION, id)
        return None if number == self._directory.number else self._directory.name_of(number)

    # ---------------------------------------------------------------- getting there

    async def carry(
        self,
        belonging: Belonging,
        here: Callable[[], Awaitable[T]],
        there: Callable[[str], Awaitable[T]],
        *,
        may_repeat: bool,
    ) -> T:
        """Have it answered where it belongs. `may_repeat` says that doing it twice is no more than doing it once."""

        async def attempt() -> T:
            target = await self.find(belonging)
            return await (here() if target is None else there(target))

        return await self.patiently(attempt, may_repeat=may_repeat)

    async def patiently(self, attempt: Callable[[], Awaitable[T]], *, may_repeat: bool) -> T:
        """Until it works, or fails for another reason than that another node is the right one by now."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await attempt()
            except Elsewhere:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            except GoQueueError as error:
                is_unknown = isinstance(error, TimedOut | CoordinationUnknown)
                if (
                    not (may_try_again(error) or (may_repeat and is_unknown))
                    or asyncio.get_running_loop().time() >= deadline
                ):
                    raise
            await self.pause()

    async def pause(self) -> None:
        """Before looking again."""
        await asyncio.sleep(_PAUSE_S)

    async def all_of(
        self,
        topic: str | None,
        here: Callable[[Sequence[int]], Awaitable[T]],
        there: Callable[[str, Sequence[int]], Awaitable[T]],
    ) -> list[T]:
        """What every node says; those that lead a partition of the topic, if it is about one. This node comes first if it
        is among them. Each is told which partitions it is asked about, and refuses where it does not lead them all: nodes
        hear of a new leader one after the other. Raises where one does not answer: a part would look like the whole."""

        async def attempt() -> list[T]:
            parts = self.parts_of(topic)
            return await together(
                [here(part) if target is None else there(target, part) for target, part in parts.items()]
            )

        return await self.patiently(attempt, may_repeat=True)


def may_try_again(error: GoQueueError) -> bool:
    """Whether nothing was done, and another node may do it, or the same one a little later."""
    return error.code in ELSEWHERE


async def together(works: Sequence[Awaitable[T]]) -> list[T]:
    """All at once, in order. If one fails the others are given up before its error is raised."""
    # Each is a task itself, not awaited by one: what is given up before it has begun would never be awaited.
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
