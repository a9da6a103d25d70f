"""A Kafka client of a cluster: it learns from any node who leads what, and asks there."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple

from goqueue.sim.cluster.host import KAFKA_PORT
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import REQUEST_TIMEOUT_S, SimKafkaClient, requests
from goqueue.sim.kafka.history import Part

# Answers after which a client asks for metadata and tries the same thing again: it does not know yet who leads, or the
# node does not; there are not enough replicas; the node is starting, stopping, slow, or short of disk.
RETRIABLE = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 74, 75, 78})
NOT_LEADER = 6


class Leader(NamedTuple):
    host: str
    epoch: int


class ClusterClient:
    def __init__(
        self, name: str, hosts: list[str], rng: Random, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.leaders: dict[Part, Leader] = {}
        self.epochs: dict[
            tuple[bytes, int], int
        ] = {}  # the newest that was heard of, by topic id and partition
        self._committed_epochs: dict[Part, int] = {}
        self._name = name
        self._hosts = hosts
        self._rng = rng
        self._timeout_s = timeout_s
        self._links: dict[str, SimKafkaClient] = {}

    @property
    def is_connected(self) -> bool:
        """To every node that it has asked."""
        return bool(self._links) and all(link.is_connected for link in self._links.values())

    @property
    def connection_count(self) -> int:
        return sum(link.connection_count for link in self._links.values())

    async def ask(self, host: str, api: str, version: int, /, **fields: Any) -> Any:
        """One node; `NoAnswer` if it has none."""
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = SimKafkaClient(
                self._name, (host, KAFKA_PORT), timeout_s=self._timeout_s
            )
        return await link.call(api, version, **fields)

    async def ask_any(self, api: str, version: int, /, **fields: Any) -> Any:
        return await self.ask(self._rng.choice(self._hosts), api, version, **fields)

    async def leader_of(self, part: Part) -> Leader:
        """As far as is known; `NoAnswer` if nobody can say."""
        least = self._committed_epochs.get(part, 0)
        if part not in self.leaders or self.leaders[part].epoch < least:
            await self.refresh(part.topic)
        leader = self.leaders.get(part)
        if leader is None or leader.epoch < least:
            raise NoAnswer(f"nobody leads {part}")
        return leader

    def note_committed(self, part: Part, epoch: int) -> None:
        """Somebody has read in that epoch and committed so: a leader of an earlier one is none any more (KIP-320)."""
        self._committed_epochs[part] = max(epoch, self._committed_epochs.get(part, 0))

    def doubt(self, part: Part) -> None:
        """Ask anew who leads it."""
        self.leaders.pop(part, None)

    async def refresh(self, topic: str) -> None:
        kinds = requests("metadata")
        answer = await self.ask_any(
            "metadata", 12, topics=[kinds.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        hosts = {broker.node_id: broker.host for broker in answer.brokers}
        for found in answer.topics:
            for one in found.partitions:
                key = bytes(found.topic_id), one.partition_index
                if one.leader_id not in hosts or one.leader_epoch < self.epochs.get(key, 0):
                    continue  # an older truth than one that is known
                self.epochs[key] = one.leader_epoch
                self.leaders[Part(topic, one.partition_index)] = Leader(
                    hosts[one.leader_id], one.leader_epoch
                )

    async def pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 0.4))

    def close(self) -> None:
        for link in self._links.values():
            link.close()
