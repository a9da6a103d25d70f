"""A whole cluster on simulated hosts, and what is seen of its inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import Random

from goqueue.core.raft.states import Ready, Role
from goqueue.node.node import Node
from goqueue.sim.cluster.disks import holds
from goqueue.sim.cluster.history import Applied, ClusterHistory, Led, Life, Ruled
from goqueue.sim.cluster.host import Chance, SimHost, node_config
from goqueue.sim.kafka.history import Part
from goqueue.sim.loop import SimLoop


class SimCluster:
    """Hosts `node-1`, `node-2` and so on. Whatever must be the same for ever is told to the history as it happens."""

    def __init__(
        self,
        loop: SimLoop,
        size: int,
        rng: Random,
        history: ClusterHistory,
        chances: Sequence[Chance] | None = None,
        *,
        has_racks: bool = False,
    ) -> None:
        """`chances` are those of the nodes, by number; without them the seed decides."""
        self.has_racks = has_racks
        self.names = [f"node-{number}" for number in range(1, size + 1)]
        self._loop = loop
        self._history = history
        self.is_changing_voters = False
        self.keeps_voters = (
            False  # one of them has forgotten everything: none of the others may cease to vote
        )
        self.hosts = {
            name: SimHost(
                loop,
                node_config(name, self.names, has_racks=has_racks),
                Random(rng.getrandbits(64)),
                self._watch,
                chances[at] if chances else None,
            )
            for at, name in enumerate(self.names)
        }

    def start(self) -> None:
        for host in self.hosts.values():
            if not host.is_up:
                host.start()

    async def end(self) -> None:
        for host in self.hosts.values():
            await host.crash(power_cut=False)

    def up(self) -> list[SimHost]:
        return [host for host in self.hosts.values() if host.is_up]

    def controller(self) -> SimHost | None:
        """Who believes to be it, if there is exactly one such node."""
        found = [host for host in self.up() if host.is_ready and host.node and host.node._quorum.is_active]
        return found[0] if len(found) == 1 else None

    def holders(
        self, part: Part, base_offset: int, values: tuple[str, ...], *, sent_s: float = inf
    ) -> tuple[str, ...]:
        """On whose disks a batch is for sure. One that was spoiled since the batch was sent may have had it when it was
        acknowledged, which the producer hears a moment later."""
        return tuple(
            name
            for name, host in self.hosts.items()
            if holds(host.disk, part, base_offset, values)
            or (host.spoiled_s is not None and host.spoiled_s >= sent_s)
        )

    def unsettled(self) -> list[str]:
        """Why the cluster is not yet as it should be when nothing fails; empty once it is."""
        unwell = [name for name, host in self.hosts.items() if not host.is_well]
        if unwell:
            return [f"not well: {', '.join(unwell)}"]
        controller = self.controller()
        if controller is None or controller.node is None:
            return ["there is not one controller"]
        quorum, catalog = controller.node._quorum, controller.node._metadata.catalog
        found = [
            f"{name} has applied {host.node._quorum.applied_index} of {quorum.applied_index}"
            for name, host in self.hosts.items()
            if host.node is not None and host.node._quorum.applied_index != quorum.applied_index
        ]
        for topic, index in catalog.partitions.all():
            state = catalog.partitions.get(topic, index)
            if state.leader < 0 or len(state.in_sync) < len(state.replicas):
                found.append(f"{topic}-{index}: {state}")
        return found

    # ---------------------------------------------------------------- watching

    def _watch(self, host: SimHost, node: Node) -> None:
        life = Life(host.name, host.life_count)
        node._quorum.when_changed(partial(self._note_rule, life, node))
        if node.cluster is not None:
            node.cluster.replication.when_leading(partial(self._note_lead, life, node))
        quorum = node._quorum
        setattr(quorum, "_apply", partial(self._note_applied, life, quorum._apply))  # noqa: B010 - for mypy

    def _note_rule(self, life: Life, node: Node) -> None:
        raft = node._quorum.raft
        if raft.role is Role.LEADER:
            self._history.ruled.append(Ruled(raft.term, life, self._loop.time()))

    def _note_lead(self, life: Life, node: Node, topic: str, index: int, is_leading: bool) -> None:
        leadership = node.cluster.replication.leadership(topic, index) if node.cluster else None
        if is_leading and leadership is not None:
            self._history.led.append(Led(Part(topic, index), leadership.epoch, life, self._loop.time()))

    def _note_applied(self, life: Life, apply: Callable[[Ready], None], ready: Ready) -> None:
        """Every entry, also those that only begin a term: an index must never hold another."""
        self._history.applied += [Applied(entry, life) for entry in ready.committed]
        apply(ready)
