"""How the cluster is: whether everything is led and on all its disks, and whether every voter counts.

The catalogue says the first on any node. The second only the controller knows, from what the voters answer it: so it is asked. A
voter that has lost its metadata neither votes nor counts until it has it again, though it follows and leads partitions like everybody
else meanwhile; whoever takes the next one down then takes the majority away.
"""

from __future__ import annotations

import logging

from msgspec import structs

from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.core.cluster.voter_rules import Electorate
from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.ports import ClusterHealth, PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.commit import Spawn
from goqueue.node.metadata import Metadata
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.shared_round import SharedRound

logger = logging.getLogger(__name__)


class Health:
    def __init__(self, metadata: Metadata, quorum: Quorum, links: PeerLinks, spawn: Spawn) -> None:
        self._metadata = metadata
        self._quorum = quorum
        self._links = links
        self._voters_round = SharedRound(self._voters_told, spawn)  # anybody may ask, as often as he likes

    async def told(self) -> ClusterHealth:
        """All of it, whichever node is asked. Where the controller does not answer, nobody can say that all is well."""
        found = self.here()
        if found.controller is None or found.voters_not_counting is not None:
            return found
        voters = await self._voters_round.ask()
        is_well = found.status == "ok" and voters == []
        return structs.replace(found, status="ok" if is_well else "degraded", voters_not_counting=voters)

    def here(self) -> ClusterHealth:
        """What this node knows by itself. It is asked often, also by who is not known: nothing here walks the partitions."""
        catalog = self._metadata.catalog
        offline_count = catalog.partitions.leader_count(NO_LEADER)
        short_count = catalog.partitions.short_count
        voters = self._voters()
        has_leader = self._quorum.leader is not None
        is_well = has_leader and not offline_count and not short_count and not voters
        return ClusterHealth(
            status="ok" if is_well else "degraded" if has_leader else "no controller",
            controller=self._quorum.leader,
            partitions_without_leader=offline_count,
            partitions_short_of_replicas=short_count,
            nodes_fenced=[node.name for node in catalog.nodes() if node.state is NodeState.FENCED],
            voters_not_counting=voters,
        )

    def _voters(self) -> list[str] | None:
        """Those that would not confirm what is decided; None on any node but the controller."""
        if self._quorum.leader != self._quorum.name:
            return None
        raft = self._quorum.raft
        standings = raft.standings(monotonic_ms())
        electorate = Electorate(self._quorum.name, raft.voters, standings, self._quorum.silent_ms_max)
        return sorted(name for name in raft.voters if not electorate.is_alive(name))

    async def _voters_told(self) -> list[str] | None:
        controller = self._quorum.leader
        if controller is None or controller == self._quorum.name:  # since this was asked
            return self._voters()
        try:
            return (await self._links.health(controller)).voters_not_counting
        except GoQueueError as error:
            logger.info("which voters count is not known error=%r", error.sentence)
            return None
