"""A client of a cluster that looks like a client of one broker: every request goes to the node that it is for.

So the members, workers and producers of `goqueue.sim.kafka` work on a cluster as they are. An answer that says "not here" or
"not now" means for them what no answer means: nobody knows what became of the request. The way is then asked for anew.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from random import Random
from typing import Any

from msgspec import Struct

from goqueue.sim.cluster.client import RETRIABLE, ClusterClient
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import Part

_BY_LEADER = frozenset({"fetch", "list_offsets", "offset_for_leader_epoch"})
_TIMEOUT_S = 5.0  # longer than a rebalance
_DOUBT_RATE = 0.3


class Kind(IntEnum):
    """Of coordinators, as FindCoordinator has them."""

    GROUP = 0
    TRANSACTION = 1


class RoutedClient:
    def __init__(
        self, name: str, hosts: list[str], rng: Random, *, rack: str = "", doubts: Random | None = None
    ) -> None:
        """`rack`: where it is; it reads from the replica that its leaders send it to (KIP-392). With `doubts` it asks any node now and
        then who coordinates, though it knows: that one may have been cut off for long, and name itself."""
        self._rack = rack
        self._doubts = doubts
        self._nodes = ClusterClient(name, hosts, rng, timeout_s=_TIMEOUT_S)
        self._coordinators: dict[tuple[Kind, str], str] = {}

    @property
    def is_connected(self) -> bool:
        return self._nodes.is_connected

    @property
    def connection_count(self) -> int:
        return self._nodes.connection_count

    def close(self) -> None:
        self._nodes.close()

    async def call(self, api: str, version: int, /, **fields: Any) -> Any:  # of whatever API it is
        """The answer; `NoAnswer` where there was none that can be relied on."""
        if api in _BY_LEADER:
            return await self._ask_leaders(api, version, fields)
        if api == "produce":
            (topic,) = fields["topic_data"]
            (one,) = topic.partition_data
            part = Part(topic.name, one.index)
            leader = await self._nodes.leader_of(part)
            return await self._ask(leader.host, api, version, fields, lambda: self._nodes.doubt(part))
        coordinator = _coordinator_for(fields)
        if coordinator is None:
            return _settled(api, await self._nodes.ask_any(api, version, **fields))
        host = await self._find(*coordinator)
        answer = await self._ask(
            host, api, version, fields, lambda: self._coordinators.pop(coordinator, None)
        )
        if api == "offset_fetch":
            self._note_committed(answer)
        return answer

    def _note_committed(self, answer: Any) -> None:
        for group in answer.groups:
            for topic in group.topics:
                for one in topic.partitions:
                    self._nodes.note_committed(
                        Part(topic.name, one.partition_index), one.committed_leader_epoch
                    )

    async def _ask(self, host: str, api: str, version: int, fields: dict[str, Any], doubt: Any) -> Any:
        try:
            return _settled(api, await self._nodes.ask(host, api, version, **fields))
        except NoAnswer:
            doubt()
            raise

    async def _find(self, kind: Kind, key: str) -> str:
        host = self._coordinators.get((kind, key))
        if host is None or (self._doubts is not None and self._doubts.random() < _DOUBT_RATE):
            answer = await self._nodes.ask_any(
                "find_coordinator", 4, key_type=int(kind), coordinator_keys=[key]
            )
            found = answer.coordinators[0]
            if found.error_code:
                raise NoAnswer(f"nobody coordinates {key!r}: {found.error_code}")
            host = self._coordinators[kind, key] = str(found.host)
        return host

    async def _ask_leaders(self, api: str, version: int, fields: dict[str, Any]) -> Any:
        """All of them at once. What one of them does not serve is not in the answer, unless nobody serves anything; but
        whoever asks where epochs end wants all of it."""
        shares = await self._shares(fields["topics"])
        if api == "fetch" and self._rack:
            fields = fields | {"rack_id": self._rack}
        if not shares:
            return await self._nodes.ask_any(api, version, **fields)
        answers = await asyncio.gather(
            *(
                self._nodes.ask(host, api, version, **(fields | {"topics": topics}))
                for host, topics in shares.items()
            ),
            return_exceptions=True,
        )
        whole: Any = None
        for host, answer in zip(shares, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, NoAnswer):
                raise answer
            if isinstance(answer, BaseException) or getattr(answer, "error_code", None):
                self._doubt(shares[host])
                continue
            self._drop_refused(answer)
            if api == "fetch" and self._rack:
                await self._read_closer(answer, shares[host], version, fields)
            whole = _joined(whole, answer)
        wanted_count = sum(len(topics) for topics in shares.values())
        found_count = sum(len(topic.partitions) for topic in _topics(whole)) if whole else 0
        if not found_count or (found_count < wanted_count and api != "fetch"):
            raise NoAnswer(f"{api}: {found_count} of {wanted_count} partitions are served")
        return whole

    async def _read_closer(self, answer: Any, asked: list[Any], version: int, fields: dict[str, Any]) -> None:
        """Put what a closer replica says in the place of who sent there; nothing where that one does not serve it."""
        by_part = {_part_of(topic, topic.partitions[0]): topic for topic in asked}
        for topic in answer.responses:
            sent_on = [one for one in topic.partitions if one.preferred_read_replica >= 0]
            topic.partitions = [one for one in topic.partitions if one not in sent_on]
            for one in sent_on:
                again = fields | {"topics": [by_part[_part_of(topic, one)]]}
                try:
                    closer = await self._nodes.ask(
                        f"node-{one.preferred_read_replica}", "fetch", version, **again
                    )
                except NoAnswer:
                    continue
                served = [found for each in closer.responses for found in each.partitions]
                topic.partitions += [found for found in served if not found.error_code]

    async def _shares(self, topics: list[Any]) -> dict[str, list[Any]]:
        """What to ask of which host: every partition has a topic of its own here. A leader of long ago, that does not know
        of another one, refuses who does (KIP-320)."""
        shares: dict[str, list[Any]] = defaultdict(list)
        for topic in topics:
            for one in topic.partitions:
                part = _part_of(topic, one)
                leader = await self._nodes.leader_of(part)
                one.current_leader_epoch = leader.epoch
                shares[leader.host].append(_with_one(topic, one))
        return shares

    def _doubt(self, topics: list[Any]) -> None:
        for topic in topics:
            self._nodes.doubt(_part_of(topic, topic.partitions[0]))

    def _drop_refused(self, answer: Any) -> None:
        for topic in _topics(answer):
            for one in topic.partitions:
                if one.error_code in RETRIABLE:
                    self._nodes.doubt(_part_of(topic, one))
            topic.partitions = [one for one in topic.partitions if one.error_code not in RETRIABLE]


def _coordinator_for(fields: dict[str, Any]) -> tuple[Kind, str] | None:
    """A request with a group is for the group's coordinator, but for the one that adds a group to a transaction."""
    groups = fields.get("groups")
    group = groups[0].group_id if groups else fields.get("group_id")
    transaction = fields.get("transactional_id") or fields.get("v3_and_below_transactional_id")
    if group is not None and ("topics" in fields or transaction is None):
        return Kind.GROUP, group
    return None if transaction is None else (Kind.TRANSACTION, transaction)


def _settled(api: str, answer: Any) -> Any:
    for code in _codes(answer):
        if code in RETRIABLE:
            raise NoAnswer(f"{api} gave {code}")
    return answer


def _codes(answer: Any) -> Iterator[int]:
    """Every error code of an answer, wherever it is in it."""
    if isinstance(answer, list | tuple):
        for one in answer:
            if isinstance(one, Struct):
                yield from _codes(one)
        return
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(value, list | tuple):
            yield from _codes(value)


def _topics(answer: Any) -> Any:
    return getattr(answer, _key_of_topics(answer))


def _key_of_topics(answer: Any) -> str:
    return "responses" if hasattr(answer, "responses") else "topics"


def _joined(whole: Any, answer: Any) -> Any:
    if whole is None:
        return answer
    setattr(whole, _key_of_topics(whole), [*_topics(whole), *_topics(answer)])
    return whole


def _part_of(topic: Any, one: Any) -> Part:
    name = topic.topic if hasattr(topic, "topic") else topic.name
    index = one.partition if hasattr(one, "partition") else one.partition_index
    return Part(name, index)


def _with_one(topic: Any, one: Any) -> Any:
    fields = {"partitions": [one]}
    key = "topic" if hasattr(topic, "topic") else "name"
    return type(topic)(**fields, **{key: getattr(topic, key)})
