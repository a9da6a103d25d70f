"""What this node answers to other nodes, and tells people about the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from goqueue.core.catalog import AlterPartitions, RegisterNode, RemoveNode
from goqueue.core.cluster.commands import Order
from goqueue.core.cluster.liveness import Status
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.core.raft.messages import Message
from goqueue.model.cluster_errors import NotController, Unauthenticated
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.health import Health
from goqueue.node.cluster.ports import (
    Beat,
    BeatAnswer,
    ClusterHealth,
    ClusterState,
    Confirmed,
    Copying,
    Done,
    Join,
    NodeView,
    PeerLinks,
)
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.commit import Spawn
from goqueue.node.metadata import Metadata
from goqueue.node.shared_round import SharedRound

logger = logging.getLogger(__name__)


class Service:
    def __init__(
        self,
        metadata: Metadata,
        quorum: Quorum,
        controller: Controller,
        health: Health,
        links: PeerLinks,
        spawn: Spawn,
    ) -> None:
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._health = health
        self._links = links
        self._views_round = SharedRound(self._views, spawn)
        self.incarnation: Callable[[], str] = str  # of this process, once it is known

    # ---------------------------------------------------------------- nodes

    def receive(self, message: Message) -> None:
        self._quorum.receive(message)

    async def join(self, join: Join) -> Done:
        return await self._controller.join(join)

    async def beat(self, beat: Beat) -> BeatAnswer:
        return await self._controller.beat(beat)

    async def leave(self, source: str, name: str) -> Done:
        return await self.execute(source, RemoveNode(name))

    async def execute(self, source: str, command: Order) -> Done:
        if isinstance(command, RegisterNode):
            raise InvalidRequest("a node registers by joining, not by a command")
        if isinstance(command, AlterPartitions):
            node = self._metadata.catalog.node(source)
            if node is None or node.number != command.node:
                raise Unauthenticated(
                    f"node {source!r} speaks for node {command.node}, which it is not", node=source
                )
        if not self._quorum.is_active:
            leader = self._quorum.leader
            raise NotController(None if leader == self._quorum.name else leader)
        return await self._metadata.decide(command)

    def copying(self) -> list[Copying]:
        return self._controller.copying()

    async def confirmed(self) -> Confirmed:
        return Confirmed(await self._quorum.confirmed_index())

    # ---------------------------------------------------------------- people

    def state(self) -> ClusterState:
        raft = self._quorum.raft
        return ClusterState(
            node=self._quorum.name,
            cluster_id=self._metadata.catalog.cluster_id,
            role=raft.role.value,
            term=raft.term,
            leader=raft.leader,
            voters=list(raft.voters),
            commit_index=raft.commit_index,
            applied_index=self._quorum.applied_index,
            last_index=raft.last_index,
            level=self._metadata.catalog.level,
            incarnation=self.incarnation(),
        )

    async def nodes_told(self) -> list[NodeView]:
        """As the controller sees them, for it hears their heartbeats. Where it does not answer, as this node does. It is asked once for
        all who wait."""
        return await self._views_round.ask()

    async def _views(self) -> list[NodeView]:
        controller = self._quorum.leader
        if controller is not None and controller != self._quorum.name:
            try:
                return await self._links.views(controller)
            except GoQueueError as error:
                logger.info("how the nodes are is not known error=%r", error.sentence)
        return self.nodes()

    def nodes(self) -> list[NodeView]:
        """As this node sees them."""
        return [self._view(node) for node in self._metadata.catalog.nodes()]

    def _view(self, node: NodeEntry) -> NodeView:
        catalog = self._metadata.catalog
        status = self._controller.status(node.name) or self._status(node)
        return NodeView(
            name=node.name,
            number=node.number,
            status=status.value,
            state=node.state.value,
            is_controller=node.name == self._quorum.leader,
            is_voter=node.name in self._quorum.raft.voters,
            endpoints=node.endpoints,
            rack=node.rack,
            version=node.version,
            level=self._controller.level_of(node.name),
            incarnation=node.incarnation,
            last_heard_ms=self._controller.silence_ms(node.name),
            leader_count=catalog.partitions.leader_count(node.number),
            replica_count=catalog.partitions.replica_count(node.number),
        )

    def _status(self, node: NodeEntry) -> Status:
        """What this node knows without heartbeats: what was decided, and that it lives itself."""
        if node.name == self._quorum.name:
            return Status.ALIVE
        return Status.DEAD if node.state is NodeState.FENCED else Status.UNKNOWN

    def metadata(self) -> dict[str, Any]:
        catalog = self._metadata.catalog
        return {
            "cluster_id": catalog.cluster_id,
            "applied_index": self._quorum.applied_index,
            "topics": [
                {
                    "name": topic.name,
                    "id": topic.id,
                    "partitions": [
                        {"partition": index, "state": state}
                        for index, state in enumerate(catalog.partitions_of(topic.name))
                    ],
                }
                for topic in catalog.topics()
            ],
        }

    def health(self) -> ClusterHealth:
        return self._health.here()
