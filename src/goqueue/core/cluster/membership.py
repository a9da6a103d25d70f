"""Nodes come, are fenced and unfenced, drain and go: what each means for the partitions they have."""

from __future__ import annotations

from typing import assert_never

from goqueue.core.cluster.commands import (
    DrainNode,
    FenceNode,
    RaiseLevel,
    RegisterNode,
    RemoveNode,
    UndrainNode,
    UnfenceNode,
)
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import take_out
from goqueue.core.cluster.events import Event, LevelRaised, NodeRegistered, NodeRemoved, NodeStateChanged
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.model.cluster_errors import LevelTooLow, NameTaken
from goqueue.model.errors import InvalidRequest

_TOPICS_NAMED_MAX = 10

MemberCommand = RegisterNode | RaiseLevel | UnfenceNode | FenceNode | DrainNode | UndrainNode | RemoveNode


def decide(cluster: Cluster, command: MemberCommand, *, level: int, has_own_topics: bool) -> list[Event]:
    """`level` of features is the one in force."""
    match command:
        case RegisterNode():
            return register(cluster, command, level=level, has_own_topics=has_own_topics)
        case RaiseLevel():
            return raise_level(cluster, level, command)
        case UnfenceNode():
            return unfence(cluster, command.name, command.incarnation)
        case FenceNode():
            return fence(cluster, command.name, command.incarnation)
        case DrainNode():
            return drain(cluster, command.name)
        case UndrainNode():
            return undrain(cluster, command.name)
        case RemoveNode():
            return remove(cluster, command.name)
        case _:
            assert_never(command)


def register(cluster: Cluster, command: RegisterNode, *, level: int, has_own_topics: bool) -> list[Event]:
    """A process has started: whatever ran on the node before is gone, and this one leads nothing yet. A proposal to let the node in
    may be under way that counts on what the process before had on a disk that is lost since; nothing else tells it from one that is
    about this process, so the epochs of all that the node holds are counted up. Of a clean start, too: folders that nobody
    counted on are not reported as lost, and a leader has to propose anew in any case. With a folder that was put back from a copy all
    that the node holds counts as lost: each log may be whole, and end before what others count on. Raises NameTaken to a process that was
    registered before, where one that is not of its folder is so now: it stood still meanwhile, and may not have heard of it."""
    if command.level < level:
        raise LevelTooLow(
            f"node {command.name!r} (version {command.version or 'unknown'}) understands feature level {command.level}, and the "
            f"cluster is at level {level}; start it with a newer version",
            node=command.name,
            needed=level,
            level=command.level,
        )
    known = cluster.nodes.find(command.name)
    if known is not None and known.incarnation == command.incarnation:
        return []  # it asks again because it has not heard the answer
    if known is not None and command.is_again and is_put_back(known, command):
        raise NameTaken(command.name, known.endpoints.cluster, command.endpoints.cluster)
    number = cluster.nodes.number_for(command.name, has_own_topics=has_own_topics)
    registered = NodeRegistered(
        command.name, number, command.incarnation, command.endpoints, command.rack, command.version
    )
    lost, is_all_lost = set(command.lost), is_put_back(known, command)
    draft = Draft(cluster, {**cluster.nodes.states(), number: NodeState.FENCED})
    for topic, index in cluster.partitions.held_by(number):
        is_lost = is_all_lost or (topic, index) in lost
        _take_out(cluster, draft, topic, index, number, is_lost=is_lost)
        draft.count_up(topic, index)
    return [registered, *draft.events()]


def is_put_back(known: NodeEntry | None, command: RegisterNode) -> bool:
    """Another process has registered since, with another folder of this node or a later state of this one."""
    own = (*command.previous, command.incarnation)
    return known is not None and bool(command.previous) and known.incarnation not in own


def raise_level(cluster: Cluster, level: int, command: RaiseLevel) -> list[Event]:
    """Somebody may have joined since the controller has heard of all."""
    understood = all(command.nodes.get(node.name) == node.incarnation for node in cluster.nodes.entries())
    return [LevelRaised(command.level)] if understood and command.level > level else []


def fence(cluster: Cluster, name: str, incarnation: str) -> list[Event]:
    entry = cluster.nodes.get(name)
    if entry.incarnation != incarnation or entry.state is NodeState.FENCED:
        return []
    draft = Draft(cluster, {**cluster.nodes.states(), entry.number: NodeState.FENCED})
    for topic, index in cluster.partitions.held_by(entry.number):
        _take_out(cluster, draft, topic, index, entry.number)
    return [NodeStateChanged(name, NodeState.FENCED), *draft.events()]


def unfence(cluster: Cluster, name: str, incarnation: str) -> list[Event]:
    entry = cluster.nodes.get(name)
    if entry.incarnation != incarnation or entry.state is not NodeState.FENCED:
        return []
    drains = cluster.nodes.was_draining(name)
    return _change_state(cluster, entry, NodeState.DRAINING if drains else NodeState.ALIVE)


def drain(cluster: Cluster, name: str) -> list[Event]:
    """Its leaderships go to others. One that is fenced has none."""
    entry = cluster.nodes.get(name)
    return _change_state(cluster, entry, NodeState.DRAINING) if entry.state is NodeState.ALIVE else []


def undrain(cluster: Cluster, name: str) -> list[Event]:
    entry = cluster.nodes.get(name)
    if entry.state is NodeState.DRAINING:
        return _change_state(cluster, entry, NodeState.ALIVE)
    if cluster.nodes.was_draining(name):
        return [NodeStateChanged(name, NodeState.FENCED)]  # it is, but shall not drain when it is unfenced
    return []


def remove(cluster: Cluster, name: str) -> list[Event]:
    entry = cluster.nodes.get(name)
    if entry.state is not NodeState.FENCED:
        raise InvalidRequest(
            f"node {name!r} is {entry.state.value}; stop it before it is removed",
            node=name,
            state=entry.state.value,
        )
    topics = cluster.partitions.topics_of(entry.number)
    if topics:
        named = ", ".join(topics[:_TOPICS_NAMED_MAX])
        more = len(topics) - _TOPICS_NAMED_MAX
        raise InvalidRequest(
            f"node {name!r} has replicas of {len(topics)} topics: {named}{f' and {more} more' if more > 0 else ''}; "
            "reassign them to other nodes first",
            node=name,
            topics=topics[:_TOPICS_NAMED_MAX],
        )
    return [NodeRemoved(name, entry.number)]


def _take_out(
    cluster: Cluster,
    draft: Draft,
    topic: str,
    index: int,
    number: int,
    *,
    is_lost: bool = False,
) -> None:
    state, rules = cluster.partitions.get(topic, index), cluster.rules_of(topic)
    draft.settle(topic, index, take_out(state, number, rules, is_lost=is_lost))


def _change_state(cluster: Cluster, entry: NodeEntry, state: NodeState) -> list[Event]:
    draft = Draft(cluster, {**cluster.nodes.states(), entry.number: state})
    for topic, index in cluster.partitions.held_by(entry.number):
        draft.settle(topic, index, cluster.partitions.get(topic, index))
    return [NodeStateChanged(entry.name, state), *draft.events()]
