"""Administrators: topics are made and grown through any node."""

from __future__ import annotations

from typing import Any

from goqueue.sim.cluster.client import RETRIABLE
from goqueue.sim.cluster.world import Topic, World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import requests

_EXISTS = 36
_INVALID_PARTITIONS = 37  # what is asked for is there already
_NOT_ENOUGH_NODES = 38  # INVALID_REPLICATION_FACTOR: too few are alive just now
_TIMEOUT_MS = 5_000


class ClusterAdmin:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._client = world.client(name)
        self._name = name
        self._rng = world.child()

    async def create(self, name: str, topic: Topic) -> None:
        """Until it is there."""
        kinds = requests("create_topics")
        configs = {
            "min.insync.replicas": topic.min_in_sync,
            "segment.bytes": self._rng.choice((1_024, 4_096, 20_000)),
            "index.interval.bytes": 256,
        }
        wanted = kinds.CreatableTopic(
            name=name,
            num_partitions=topic.partition_count,
            replication_factor=topic.replica_count,
            configs=[
                kinds.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()
            ],
        )
        await self._until_done("create_topics", 7, "topics", _EXISTS, topics=[wanted])
        self._world.topics[name] = topic

    async def grow(self, name: str, partition_count: int) -> None:
        kinds = requests("create_partitions")
        wanted = kinds.CreatePartitionsTopic(name=name, count=partition_count, assignments=None)
        await self._until_done("create_partitions", 3, "results", _INVALID_PARTITIONS, topics=[wanted])
        self._world.topics[name].partition_count = partition_count

    async def _until_done(self, api: str, version: int, results: str, done: int, /, **fields: Any) -> None:
        is_first = True
        while True:
            try:
                answer = await self._client.ask_any(
                    api, version, timeout_ms=_TIMEOUT_MS, validate_only=False, **fields
                )
                code = getattr(answer, results)[0].error_code
                if not code or (code == done and not is_first):
                    return
                if code not in RETRIABLE and code != _NOT_ENOUGH_NODES:
                    self._world.history.violate(f"{self._name}: {api} gave {code}")
            except NoAnswer:
                pass
            is_first = False
            await self._client.pause()
