"""A run of a simulated cluster as text: what nodes decide, become and cut, and what a client is told, a sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any  # of events: whatever a state has
from unittest.mock import patch

from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.core.raft.states import Role
from goqueue.core.txn.events import TransactionSaved
from goqueue.node.led_shards import LedShards, Shard
from goqueue.node.node import Node
from goqueue.node.partition import Partition, Stored
from goqueue.node.replication.following import Follower
from goqueue.node.state_log import StateLog
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.host import SimHost
from goqueue.sim.life import current_life
from goqueue.sim.loop import SimLoop

_TOLD: dict[str, str] = {
    "Ongoing": "has something in it",
    "PrepareCommit": "will be committed, whatever happens",
    "PrepareAbort": "will be aborted, whatever happens",
    "CompleteCommit": "is committed everywhere",
    "CompleteAbort": "is aborted everywhere",
}


class Transcript:
    """`heard` is called with every line, as it is written: a scene can go on from there."""

    def __init__(self, loop: SimLoop, topics: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.heard: list[Callable[[str], None]] = []
        self.is_muted = False
        self._loop = loop
        self._topics = topics
        self._decided_index = 0
        self._rulers: dict[str, bool] = {}

    def note(self, what: str, host: str = "") -> None:
        line = f"{host}{' ' if host else ''}{what}"
        if not self.is_muted:
            self.lines.append(f"{self._loop.time():7.1f} {line}")
        for listener in list(self.heard):
            listener(line)

    def _own(self, what: str) -> None:
        life = current_life.get()
        self.note(what, life.host if life else "somebody")

    # ---------------------------------------------------------------- nodes

    @contextmanager
    def listening(self, cluster: SimCluster) -> Iterator[None]:
        watch = cluster._watch
        for host in cluster.hosts.values():
            host._watch = partial(self._watch, watch)
        append, append_marker, cut, loaded = (
            StateLog.append,
            Partition.append_marker,
            Follower._cut,
            LedShards._load,
        )

        def tell_events(log: StateLog[Any], events: Sequence[Any]) -> None:
            append(log, events)
            for event in events:
                if isinstance(event, TransactionSaved) and event.state.value in _TOLD:
                    self._own(
                        f"writes that transaction {event.transactional_id!r} {_TOLD[event.state.value]}"
                    )

        def tell_marker(at: Partition, producer_id: int, epoch: int, **options: Any) -> Stored:
            found = append_marker(at, producer_id, epoch, **options)
            kind = "commit" if options.get("is_commit") else "abort"
            if at.topic in self._topics:
                self._own(f"writes the {kind} marker to {at.topic}-{at.index}")
            return found

        async def tell_cut(follower: Follower, at: Partition, epoch: int, end: int) -> None:
            before = at.log.end
            await cut(follower, at, epoch, end)
            if at.topic in self._topics:
                self._own(
                    f"cuts {at.topic}-{at.index} back from {before} to {at.log.end}: what came then is not its leader's"
                )

        async def tell_loaded(shards: LedShards[Any], index: int, shard: Shard) -> None:
            await loaded(shards, index, shard)
            if shards._loaded.get(index) is shard and f"{shards._topic}-{index}" in self._topics:
                self._own(f"has read {shards._topic}-{index} and coordinates what is in it")

        with (
            patch.object(StateLog, "append", tell_events),
            patch.object(Partition, "append_marker", tell_marker),
            patch.object(Follower, "_cut", tell_cut),
            patch.object(LedShards, "_load", tell_loaded),
        ):
            yield

    def _watch(self, watch: Callable[[SimHost, Node], None], host: SimHost, node: Node) -> None:
        watch(host, node)
        name = host.name
        self._rulers[name] = False
        node._quorum.when_changed(partial(self._note_rule, name, node))
        if node.cluster is not None:
            node.cluster.replication.when_leading(partial(self._note_lead, name, node))
        metadata = node._metadata
        setattr(metadata, "apply", partial(self._note_decision, node, metadata.apply))  # noqa: B010 - for mypy

    def _note_rule(self, name: str, node: Node) -> None:
        raft = node._quorum.raft
        is_ruling = raft.role is Role.LEADER
        if is_ruling != self._rulers.get(name, False):
            self.note(f"{'becomes' if is_ruling else 'is no longer'} the controller, term {raft.term}", name)
        self._rulers[name] = is_ruling

    def _note_lead(self, name: str, node: Node, topic: str, index: int, is_leading: bool) -> None:
        if topic not in self._topics:
            return
        leadership = node.cluster.replication.leadership(topic, index) if node.cluster else None
        if is_leading and leadership is not None:
            self.note(f"leads {topic}-{index} in epoch {leadership.epoch}", name)
        elif not is_leading:
            self.note(f"does not lead {topic}-{index} any more", name)

    def _note_decision(
        self, node: Node, apply: Callable[[int, bytes], None], index: int, payload: bytes
    ) -> None:
        before = self._facts(node)
        apply(index, payload)
        if index <= self._decided_index:
            return
        self._decided_index = index
        for what, fact in self._facts(node).items():
            if before.get(what) != fact:
                self.note(f"it is decided: {what} {fact}")

    def _facts(self, node: Node) -> dict[str, str]:
        """Of the nodes and of the partitions that the scene is about."""
        catalog = node._metadata.catalog
        facts = {entry.name: f"is {entry.state.value}" for entry in catalog.nodes()}
        for topic, index in catalog.partitions.all():
            if topic in self._topics:
                facts[f"{topic}-{index}"] = _told(catalog.partitions.get(topic, index))
        return facts


def _told(state: PartitionState) -> str:
    led = "has no leader" if state.leader == NO_LEADER else f"is led by node-{state.leader}"
    words = [f"{led}, epoch {state.leader_epoch}", f"in sync are {_names(state.in_sync)}"]
    if state.eligible:
        words.append(f"{_names(state.eligible)} may lead: nothing was committed since")
    return "; ".join(words)


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(f"node-{number}" for number in numbers) or "none"
