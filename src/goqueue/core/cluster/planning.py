"""Plans that the cluster makes by itself: all replicas of a node elsewhere, or the same load for every node.

Both move as little as they can, put no two replicas on one node and no more into one rack than there were, and come to the same
result wherever they are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from goqueue.core.cluster.draft import Cluster
from goqueue.core.cluster.elections import can_serve
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.placement import Load, spread_leaders
from goqueue.core.cluster.plans import Key, Move
from goqueue.model.errors import InvalidReplicaAssignment

WARNING_COUNT_MAX = 20

Target = tuple[str, int, list[int]]


class _Survey(Struct):
    """Where everything will be, while it is being planned."""

    racks: dict[int, str]
    alive: list[int]  # those that may get more
    replicas: Counter[int]
    leaders: Counter[int]  # first replicas
    by_topic: dict[str, Counter[int]]

    def shift(self, topic: str, source: int, target: int) -> None:
        own = self.by_topic[topic]
        for counts in (self.replicas, own):
            counts[source] -= 1
            counts[target] += 1

    def rack_count(self, members: Iterable[int]) -> int:
        return len({self.racks[each] for each in members})


def drain(cluster: Cluster, number: int) -> list[Target]:
    """Nothing of it stays on the node."""
    survey = _survey(cluster)
    targets: list[Target] = []
    for topic, index in cluster.partitions.held_by(number):
        members = list(cluster.partitions.get(topic, index).target)
        if number not in members:
            continue
        others = [each for each in members if each != number]
        free = [each for each in survey.alive if each not in members]
        if not free:
            raise InvalidReplicaAssignment(
                f"{topic}-{index} cannot leave node {number}: every other node that is alive has it already",
                topic=topic,
                partition=index,
                node=number,
            )
        own = survey.by_topic[topic]
        chosen = min(
            free,
            key=lambda each: (
                -survey.rack_count([*others, each]),
                own[each],
                survey.replicas[each],
                each,
            ),
        )
        survey.shift(topic, number, chosen)
        moved = [chosen if each == number else each for each in members]
        targets.append((topic, index, _led_anew(survey, moved) if members[0] == number else moved))
    return targets


def balance(cluster: Cluster, topics: Sequence[str] | None) -> list[Target]:
    """Replicas, then first replicas, differ by one at most between nodes that are alive, as far as the topics and racks allow."""
    survey = _survey(cluster)
    table = cluster.partitions
    names = sorted(set(topics)) if topics is not None else table.topics()
    wanted = {
        (name, index): list(state.target)
        for name in names
        for index, state in enumerate(table.of(name))
        if not state.is_moving and is_movable(cluster, state.target)
    }
    for keeps_topics_even in (True, False):
        while _even_out(survey, wanted, keeps_topics_even=keeps_topics_even):
            pass
    assignments = list(wanted.values())
    spread_leaders(assignments, _loads(cluster, survey))
    return [
        (topic, index, members)
        for (topic, index), members in wanted.items()
        if tuple(members) != table.get(topic, index).target
    ]


def is_movable(cluster: Cluster, replicas: Sequence[int]) -> bool:
    """A partition is left alone while one of its nodes is down: where that one's replica is best is not known."""
    states = cluster.nodes.states()
    return all(can_serve(states, each) for each in replicas)


def warnings(cluster: Cluster, moves: Sequence[Move]) -> list[str]:
    """What somebody should know before it is done."""
    survey = _survey(cluster)
    found: list[str] = []
    rack_count_max = len(set(survey.racks.values()))
    for move in moves:
        where, state = f"{move.topic}-{move.partition}", cluster.partitions.get(*move.key)
        if len(move.after) != len(move.before):
            found.append(f"{where} is to have {len(move.after)} replicas instead of {len(move.before)}")
        if survey.rack_count(move.after) < min(len(move.after), rack_count_max):
            found.append(f"{where} is to be more than once in one rack while there are others")
        if len(state.in_sync) < len(state.replicas):
            found.append(f"{where} has {len(state.in_sync)} of {len(state.replicas)} replicas in sync now")
        if len(found) >= WARNING_COUNT_MAX:
            return [*found[:WARNING_COUNT_MAX], "and more"]
    return found


def _survey(cluster: Cluster) -> _Survey:
    entries = cluster.nodes.entries()
    survey = _Survey(
        racks={node.number: f"rack {node.rack}" if node.rack else f"node {node.number}" for node in entries},
        alive=[node.number for node in entries if node.state is NodeState.ALIVE],
        replicas=Counter(),
        leaders=Counter(),
        by_topic={},
    )
    for name in cluster.partitions.topics():
        own = survey.by_topic[name] = Counter()
        for state in cluster.partitions.of(name):
            own.update(state.target)
            survey.leaders[state.target[0]] += 1
        survey.replicas.update(own)
    return survey


def _led_anew(survey: _Survey, members: list[int]) -> list[int]:
    """With the one first that is first the least."""
    leader = min(
        members,
        key=lambda each: (each not in survey.alive, survey.leaders[each], members.index(each)),
    )
    survey.leaders[leader] += 1
    return [leader, *(each for each in members if each != leader)]


def _even_out(survey: _Survey, wanted: dict[Key, list[int]], *, keeps_topics_even: bool) -> bool:
    """Once over everything; whether something was moved. Every move brings two nodes closer together, so this ends."""
    has_moved = False
    for (topic, _), members in wanted.items():
        own = survey.by_topic[topic]
        for source in sorted(members, key=lambda each: (-survey.replicas[each], each)):
            if source not in survey.alive:
                continue
            others = [each for each in members if each != source]
            least_racks = survey.rack_count(members)
            fits = [
                each
                for each in survey.alive
                if each not in members
                and survey.replicas[source] - survey.replicas[each] >= 2
                and (own[source] > own[each] or not keeps_topics_even)
                and survey.rack_count([*others, each]) >= least_racks
            ]
            if fits:
                chosen = min(fits, key=lambda each: (survey.replicas[each], own[each], each))
                survey.shift(topic, source, chosen)
                if members[0] == source:
                    survey.leaders[source] -= 1
                    survey.leaders[chosen] += 1
                members[members.index(source)] = chosen
                has_moved = True
                break
    return has_moved


def _loads(cluster: Cluster, survey: _Survey) -> dict[int, Load]:
    """Of first replicas over all topics."""
    return {
        node.number: Load(
            position,
            is_reserve=node.state is not NodeState.ALIVE,
            own_replicas=0,
            replicas=0,
            own_leaders=survey.leaders[node.number],
            leaders=0,
        )
        for position, node in enumerate(cluster.nodes.entries())
        if node.state is not NodeState.FENCED
    }
