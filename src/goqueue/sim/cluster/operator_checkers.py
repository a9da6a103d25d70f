"""The invariants of what operators do to a cluster: one class each. They look at every decision of the metadata, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from goqueue.core.catalog import Catalog
from goqueue.core.cluster.events import Event, NodeStateChanged, decode_events
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partition_table import Key
from goqueue.core.cluster.partitions import PartitionState, in_sync_min
from goqueue.core.cluster.plans import MoveState
from goqueue.core.raft.messages import EntryKind
from goqueue.model.limits import Limits
from goqueue.node.folder import partition_folder
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.disk import SimDisk
from goqueue.sim.platter import DirNode, FileNode


@dataclass(slots=True)
class Asked:
    """A setting that somebody wants."""

    topic: str
    name: str
    value: str
    is_done: bool = False  # as far as it was told


class Decision(NamedTuple):
    """What changed with one entry of the metadata."""

    events: list[Event]
    before: dict[Key, PartitionState]
    after: dict[Key, PartitionState]
    catalog: Catalog


@dataclass(slots=True)
class Orders:
    """What was ordered, and what became of it."""

    cluster: SimCluster
    history: ClusterHistory
    made: list[str] = field(default_factory=list)  # topics that are to be deleted again
    deleted: list[str] = field(default_factory=list)
    settings: list[Asked] = field(default_factory=list)

    def ask_setting(self, topic: str, name: str, value: str) -> Asked:
        asked = Asked(topic, name, value)
        self.settings.append(asked)
        return asked

    def decisions(self) -> Iterator[Decision]:
        """As every node has applied them. The catalogue is the same object all along."""
        payloads = {
            one.entry.index: one.entry.payload
            for one in self.history.applied
            if one.entry.kind is EntryKind.COMMAND
        }
        catalog = Catalog(Limits())
        before: dict[Key, PartitionState] = {}
        for _, payload in sorted(payloads.items()):
            events = decode_events(payload) if payload else []
            for event in events:
                catalog.apply(event)
            after = {key: catalog.partitions.get(*key) for key in catalog.partitions.all()}
            yield Decision(events, before, after, catalog)
            before = after

    def unsettled(self) -> list[str]:
        """What is not yet as it should be when nothing fails."""
        controller = self.cluster.controller()
        if controller is None or controller.node is None:
            return ["there is not one controller"]
        catalog = controller.node._metadata.catalog
        found = [f"{topic}-{index} is led astray" for topic, index in catalog.partitions.astray()]
        for topic, index in catalog.partitions.all():
            state = catalog.partitions.get(topic, index)
            names = [topic, *(f"__{kind}.{topic}" for kind in sorted(catalog.companions(topic)))]
            for number, host in enumerate(self.cluster.hosts.values(), 1):
                found += [
                    f"{host.name} still has {name}-{index}"
                    for name in names
                    if number not in state.replicas and has_folder(host.disk, partition_folder(name, index))
                ]
        for topic in self.deleted:
            found += [
                f"{host.name} still has {name}"
                for host in self.cluster.hosts.values()
                for name in (topic, f"__schedule.{topic}")
                if has_folder(host.disk, partition_folder(name, 0))
            ]
        return found


def has_folder(disk: SimDisk, path: str) -> bool:
    node: DirNode | FileNode | None = disk.platter.root
    for name in path.split("/"):
        node = node.names.get(name) if isinstance(node, DirNode) else None
    return isinstance(node, DirNode)


class OperatorChecker(Protocol):
    def check(self, orders: Orders) -> None: ...


class OldReplicasGoLast:
    """A replica leaves a partition when those that take its place are in sync, and enough of them; or if it was only on its
    way there."""

    def check(self, orders: Orders) -> None:
        for decision in orders.decisions():
            for (topic, index), new in decision.after.items():
                old = decision.before.get((topic, index))
                if old is None or set(old.replicas) <= set(new.replicas):
                    continue
                where, gone = f"{topic}-{index}", sorted(set(old.replicas) - set(new.replicas))
                if set(gone) <= set(old.adding):
                    continue  # the plan was given up
                if not set(new.replicas) - set(old.replicas) | set(old.adding) <= set(new.in_sync):
                    orders.history.violate(
                        f"{gone} left {where} for {old.adding}, of which only {new.in_sync} are in sync"
                    )
                least = in_sync_min(new, decision.catalog.rules_of(topic).min_insync_replicas)
                if len(new.in_sync) < least:
                    orders.history.violate(
                        f"{gone} left {where}, which has {new.in_sync} in sync and needs {least}"
                    )


class DrainingKeepsReplicas:
    """Whoever is drained leads no longer, but has what it has: no in-sync set is smaller for it. (One that comes back to drain
    on may be elected as eligible; then whoever was in sync and is away is eligible in its place.)"""

    def check(self, orders: Orders) -> None:
        for decision in orders.decisions():
            is_drain = any(
                isinstance(event, NodeStateChanged) and event.state is NodeState.DRAINING
                for event in decision.events
            )
            if not is_drain:
                continue
            for key, new in decision.after.items():
                old = decision.before.get(key)
                if old is not None and not set(old.in_sync) <= {*new.in_sync, *new.eligible}:
                    orders.history.violate(
                        f"{key} had {old.in_sync} in sync; when a node was drained it had {new.in_sync}"
                    )


class InSyncIsAReplica:
    """Nobody is in sync, eligible or leads that is not a replica, and a leader is in sync."""

    def check(self, orders: Orders) -> None:
        for decision in orders.decisions():
            for key, new in decision.after.items():
                if decision.before.get(key) is new:
                    continue
                if not new.in_sync or not {*new.in_sync, *new.eligible} <= set(new.replicas):
                    orders.history.violate(f"{key} is {new}")
                if new.leader >= 0 and new.leader not in new.in_sync:
                    orders.history.violate(f"{key} is led by {new.leader}, which is not in sync: {new}")


class PlansEnd:
    """When all has healed no plan is left, nothing moves, nobody is drained, and what was moved is where the plan said."""

    def check(self, orders: Orders) -> None:
        catalog = Catalog(Limits())
        for decision in orders.decisions():
            catalog = decision.catalog
        active = catalog.plans.active()
        if active is not None:
            orders.history.violate(f"plan {active.id} is {active.state.value} when all is over")
        for node in catalog.nodes():
            if node.state is NodeState.DRAINING:
                orders.history.violate(f"{node.name} is drained when all is over")
        last = {
            move.key: (plan.id, move.after)
            for plan in catalog.plans.all()
            for move in plan.moves
            if move.state is MoveState.DONE
        }
        for key in catalog.partitions.all():
            state = catalog.partitions.get(*key)
            if state.is_moving:
                orders.history.violate(f"{key} still moves: {state}")
            elif key in last and state.replicas != last[key][1]:
                orders.history.violate(f"plan {last[key][0]} moved {key} to {last[key][1]}; it is {state}")


class OrdersLast:
    """A topic whose deletion was acknowledged is gone; a setting that was acknowledged counts, unless a later or a lost order
    says otherwise."""

    def check(self, orders: Orders) -> None:
        catalog = Catalog(Limits())
        for decision in orders.decisions():
            catalog = decision.catalog
        for topic in orders.deleted:
            if catalog.find(topic) is not None:
                orders.history.violate(f"{topic} was deleted and is there")
        done = [asked for asked in orders.settings if asked.is_done]
        if done:
            lost = {asked.value for asked in orders.settings if not asked.is_done}
            last = done[-1]
            found = catalog.topic(last.topic).overrides.get(last.name)
            if found not in {last.value, *lost}:
                orders.history.violate(f"{last.name} of {last.topic} was set to {last.value} and is {found}")


OPERATOR_CHECKERS: tuple[OperatorChecker, ...] = (
    OldReplicasGoLast(),
    DrainingKeepsReplicas(),
    InSyncIsAReplica(),
    PlansEnd(),
    OrdersLast(),
)
