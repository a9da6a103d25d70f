"""Where the replicas of new partitions go.

Each partition goes to as many racks as possible: no rack twice before all are used. Among racks, and among the nodes of a rack,
the one with the fewest replicas of the topic comes next, then the one with the fewest of all; what is still equal is decided by
the topic's id and the partition, so that not every topic begins on node 1. A node without a rack is a rack of its own. Then each
partition gets its leader, its first replica, so that no node leads more than one partition of the topic more than another, as far
as the racks allow.

Nodes that are down get replicas only where the others are too few: a topic that is made while a node restarts has as many replicas
as any other, and the node catches up.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest

from msgspec import Struct

from goqueue.core.cluster.elections import States, can_serve
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.core.cluster.partition_table import PartitionTable
from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NotEnoughReplicas

REPLICATION_FACTOR_DEFAULT = 3


class Load(Struct):
    """What a node has: of the topic, and of all."""

    position: int
    is_reserve: bool  # it drains, or is down
    own_replicas: int
    replicas: int
    own_leaders: int
    leaders: int


class _Rack(Struct):
    """With what its nodes have together, counted along: there may be a hundred racks, and thousands of partitions to place."""

    nodes: list[int]
    own_replicas: int = 0
    replicas: int = 0
    fullness: tuple[float, float] = (0.0, 0.0)  # the same per node

    def add(self, own_replicas: int, replicas: int) -> None:
        self.own_replicas += own_replicas
        self.replicas += replicas
        self.fullness = self.own_replicas / len(self.nodes), self.replicas / len(self.nodes)


def replication_factor(wanted: int | None, nodes: Iterable[NodeEntry]) -> int:
    """What is wanted, if there are so many nodes; else what is usual."""
    states = [node.state for node in nodes]
    count = len(states)
    if wanted is not None and not 1 <= wanted <= count:
        raise InvalidReplicationFactor(
            f"a replication factor of {wanted} is not possible with {count} nodes; it must be 1 to {count}",
            replication_factor=wanted,
            node_count=count,
        )
    if all(state is NodeState.FENCED for state in states):
        raise NotEnoughReplicas("no node is alive that could take a replica; try again when one is")
    return min(REPLICATION_FACTOR_DEFAULT, count) if wanted is None else wanted


def place(
    nodes: Sequence[NodeEntry],
    table: PartitionTable,
    own: Sequence[PartitionState],
    *,
    topic_id: int,
    count: int,
    factor: int,
) -> list[list[int]]:
    """The replicas of `count` more partitions of a topic that has its `own` already."""
    loads, racks = _survey(nodes, table, own, factor=factor)
    assignments = [_choose(racks, loads, factor, topic_id + len(own) + index) for index in range(count)]
    spread_leaders(assignments, loads)
    return assignments


def check_assignments(assignments: Sequence[Sequence[int]], count: int, states: States) -> list[list[int]]:
    """Those that somebody chose."""
    if len(assignments) != count:
        raise InvalidReplicaAssignment(
            f"there are assignments for {len(assignments)} partitions, but {count} are to be made",
            partitions=count,
        )
    for index, replicas in enumerate(assignments):
        problem = _problem(replicas, len(assignments[0]), states)
        if problem:
            raise InvalidReplicaAssignment(
                f"the assignment {list(replicas)} of partition {index} of those to be made {problem}",
                replicas=list(replicas),
            )
    return [list(replicas) for replicas in assignments]


def _problem(replicas: Sequence[int], length: int, states: States) -> str | None:
    if not replicas:
        return "names no node"
    if len(replicas) != length:
        return f"has another length than the first, which has {length}"
    if len(set(replicas)) != len(replicas):
        return "names a node twice"
    if any(each not in states for each in replicas):
        return f"names a node that the cluster does not have; it has {', '.join(map(str, sorted(states)))}"
    if not any(can_serve(states, each) for each in replicas):
        return "names only nodes that are down"
    return None


def _survey(
    nodes: Sequence[NodeEntry], table: PartitionTable, own: Sequence[PartitionState], *, factor: int
) -> tuple[dict[int, Load], list[_Rack]]:
    """The nodes that can be used, with what they have, and by rack."""
    usable = _usable(nodes, table, factor)
    own_replicas = Counter(number for state in own for number in state.target)
    own_leaders = Counter(state.target[0] for state in own)
    loads: dict[int, Load] = {}
    racks: dict[str, _Rack] = {}
    for position, node in enumerate(usable):
        number = node.number
        loads[number] = Load(
            position,
            is_reserve=node.state is not NodeState.ALIVE,
            own_replicas=own_replicas[number],
            replicas=table.replica_count(number),
            own_leaders=own_leaders[number],
            leaders=table.preferred_count(number),
        )
        rack = racks.setdefault(f"rack {node.rack}" if node.rack else f"node {number}", _Rack([]))
        rack.nodes.append(number)
        rack.add(own_replicas[number], loads[number].replicas)
    return loads, list(racks.values())


def _usable(nodes: Sequence[NodeEntry], table: PartitionTable, factor: int) -> list[NodeEntry]:
    """Draining ones only if there are not enough others, and of those that are down as few as have to be: so every partition
    has one that is not."""
    alive = [node for node in nodes if node.state is NodeState.ALIVE]
    if len(alive) >= factor:
        return alive
    able = [node for node in nodes if node.state is not NodeState.FENCED]
    down = [node for node in nodes if node.state is NodeState.FENCED]
    down.sort(key=lambda node: (table.replica_count(node.number), node.number))
    chosen = {node.number for node in (*able, *down[: max(0, factor - len(able))])}
    return [node for node in nodes if node.number in chosen]


def _choose(racks: Sequence[_Rack], loads: Mapping[int, Load], factor: int, turn: int) -> list[int]:
    chosen: list[int] = []
    used: set[int] = set()  # racks of which every node is chosen; only ever asked for membership
    while len(chosen) < factor:
        keys = [
            (rack.fullness, (index - turn) % len(racks), index)
            for index, rack in enumerate(racks)
            if index not in used
        ]
        for _, _, index in nsmallest(factor - len(chosen), keys):
            rack = racks[index]
            free = [each for each in rack.nodes if each not in chosen]
            node = min(free, key=lambda each: _node_key(loads[each], turn, len(loads)))
            loads[node].own_replicas += 1
            loads[node].replicas += 1
            rack.add(1, 1)
            chosen.append(node)
            if len(free) == 1:
                used.add(index)
    leader = min(chosen, key=lambda each: _leader_key(loads[each], turn, len(loads)))
    loads[leader].own_leaders += 1
    loads[leader].leaders += 1
    return [leader, *(each for each in chosen if each != leader)]


def _node_key(load: Load, turn: int, count: int) -> tuple[bool, int, int, int]:
    return load.is_reserve, load.own_replicas, load.replicas, (load.position - turn) % count


def _leader_key(load: Load, turn: int, count: int) -> tuple[bool, int, int, int]:
    return load.is_reserve, load.own_leaders, load.leaders, (load.position - turn) % count


def spread_leaders(assignments: list[list[int]], loads: Mapping[int, Load]) -> None:
    """Choosing leaders one by one can end uneven. While a node leads two more than another that can be reached from it, each
    partition on the way there is handed on by one."""
    while loads:
        path = _uneven_path(assignments, loads)
        if not path:
            return
        for partition, leader in path:
            replicas = assignments[partition]
            loads[replicas[0]].own_leaders -= 1
            loads[leader].own_leaders += 1
            replicas.remove(leader)
            replicas.insert(0, leader)


def _uneven_path(assignments: Sequence[Sequence[int]], loads: Mapping[int, Load]) -> list[tuple[int, int]]:
    """Steps (partition, its next leader) from a node that leads most to one that leads two less."""
    most = max(load.own_leaders for load in loads.values())
    if most - min(load.own_leaders for load in loads.values()) < 2:
        return []
    led: dict[int, list[int]] = {number: [] for number in loads}
    for partition, replicas in enumerate(assignments):
        led[replicas[0]].append(partition)
    for start in [number for number, load in loads.items() if load.own_leaders == most]:
        came: dict[int, tuple[int, int]] = {}  # node to (partition, the node that leads it)
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            if loads[node].own_leaders <= most - 2 and not loads[node].is_reserve:
                return _steps(came, start, node)
            for partition in led[node]:
                for other in assignments[partition][1:]:
                    if other != start and other not in came:
                        came[other] = (partition, node)
                        waiting.append(other)
    return []


def _steps(came: Mapping[int, tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    node = end
    while node != start:
        partition, leader = came[node]
        steps.append((partition, node))
        node = leader
    return steps
