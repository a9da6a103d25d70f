"""A catalogue of a cluster, run as a controller runs it: through the bytes of commands and events."""

from __future__ import annotations

from goqueue.core.catalog import (
    AlterPartitions,
    Catalog,
    Command,
    CreateTopic,
    DrainNode,
    Event,
    FenceNode,
    InSyncProposal,
    RegisterNode,
    UnfenceNode,
    decode_command,
    decode_events,
    encode_command,
    encode_events,
)
from goqueue.core.cluster.commands import RaiseLevel
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.limits import Limits


def endpoints(name: str) -> Endpoints:
    return Endpoints(http=f"{name}:8080", kafka=f"{name}:9092", cluster=f"{name}:7000")


class CatalogRun:
    """A catalogue and all that went into it. Nodes are called `n1`, `n2` and so on."""

    def __init__(self, node_count: int = 0, *, racks: dict[int, str] | None = None) -> None:
        self.catalog = Catalog(Limits())
        self.log: list[bytes] = []
        self._starts = 0
        for number in range(1, node_count + 1):
            self.start(number, rack=(racks or {}).get(number, ""))

    def run(self, command: Command) -> list[Event]:
        command = decode_command(encode_command(command))
        data = encode_events(self.catalog.decide(command, 5))
        self.log.append(data)
        events = decode_events(data)
        for event in events:
            self.catalog.apply(event)
        return events

    def register(
        self,
        number: int,
        *,
        lost: list[tuple[str, int]] | None = None,
        rack: str = "",
        level: int = LEVEL_NEWEST,
        previous: list[str] | None = None,
    ) -> None:
        self._starts += 1
        name = f"n{number}"
        self.run(
            RegisterNode(
                name,
                f"{name}/{self._starts}",
                endpoints(name),
                rack,
                "1",
                lost or [],
                level,
                previous or [],
            )
        )

    def raise_level(self, level: int = LEVEL_NEWEST, *, without: int | None = None) -> list[Event]:
        """As a controller that has heard of all nodes but perhaps one."""
        nodes = {node.name: node.incarnation for node in self.catalog.nodes() if node.number != without}
        return self.run(RaiseLevel(level, nodes))

    def start(self, number: int, *, rack: str = "") -> None:
        self.register(number, rack=rack)
        self.unfence(number)

    def incarnation(self, number: int) -> str:
        entry = self.catalog.node_by_number(number)
        assert entry is not None
        return entry.incarnation

    def unfence(self, number: int) -> list[Event]:
        return self.run(UnfenceNode(f"n{number}", self.incarnation(number)))

    def fence(self, *numbers: int) -> None:
        for number in numbers:
            self.run(FenceNode(f"n{number}", self.incarnation(number)))

    def drain(self, number: int) -> None:
        self.run(DrainNode(f"n{number}"))

    def create(self, *replicas: int, name: str = "t", min_in_sync: int = 1) -> PartitionState:
        """A topic with one partition on these nodes."""
        overrides = {"min.insync.replicas": str(min_in_sync)}
        self.run(CreateTopic(name, 1, overrides, assignments=[list(replicas)]))
        return self.state(name)

    def state(self, topic: str = "t", index: int = 0) -> PartitionState:
        return self.catalog.partition(topic, index)

    def propose(
        self, *in_sync: int, topic: str = "t", index: int = 0, is_damaged: bool = False
    ) -> list[Event]:
        """As the leader of the partition."""
        state = self.state(topic, index)
        proposal = InSyncProposal(topic, index, state.leader_epoch, state.epoch, list(in_sync), is_damaged)
        return self.run(AlterPartitions(state.leader, self.incarnation(state.leader), [proposal]))

    def replayed(self) -> Catalog:
        again = Catalog(Limits())
        for data in self.log:
            for event in decode_events(data):
                again.apply(event)
        return again
