"""A simulated cluster that a test plays with, step by step: whole nodes, their network and their disks in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from goqueue.model.record import Producer
from goqueue.node.node import Node
from goqueue.sim.cluster.client import ClusterClient
from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.cluster.host import HTTP_PORT
from goqueue.sim.http import Answer, SimHttpClient
from goqueue.sim.kafka.batches import new_batch
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Part, now_ms
from goqueue.sim.loop import SimLoop, run

T = TypeVar("T")
ORDERS = Part("orders", 0)
_LOOK_S = 0.05
_PATIENCE_S = 60.0


class PlayedCluster:
    def __init__(self, loop: SimLoop, size: int, *, has_racks: bool = False) -> None:
        self.loop = loop
        self.network = loop.network
        self.cluster = SimCluster(loop, size, Random(7), ClusterHistory(), has_racks=has_racks)
        self.client = ClusterClient("client", self.cluster.names, Random(8))
        self._https: dict[str, SimHttpClient] = {}

    async def begin(self) -> None:
        self.cluster.start()
        await self.until(lambda: not self.cluster.unsettled())

    async def end(self) -> None:
        self.client.close()
        for http in self._https.values():
            http.close()
        await self.cluster.end()

    async def start_again(self) -> None:
        """All nodes, after a power cut."""
        for http in self._https.values():
            http.close()
        for host in self.cluster.hosts.values():
            await host.crash(power_cut=True)
        await self.begin()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - nobody calls when it is
                await asyncio.sleep(_LOOK_S)

    def node(self, name: str) -> Node:
        found = self.cluster.hosts[name].node
        assert found is not None
        return found

    def isolate(self, name: str) -> None:
        """From the other nodes; clients reach it."""
        for other in self.cluster.names:
            if other != name:
                self.network.partition(name, other)

    def heal(self) -> None:
        self.network.heal()

    async def rest(self, name: str, method: str, path: str, body: object = None) -> Answer:
        http = self._https.setdefault(name, SimHttpClient(name, HTTP_PORT))
        return await http.request(method, path, body)

    async def create(self, name: str = "orders", **wanted: Any) -> None:
        """Through the controller, and known everywhere when this is back."""
        body = {"name": name, "num_partitions": 1} | wanted
        controller = self.cluster.controller()
        assert controller is not None
        answer = await self.rest(controller.name, "POST", "/topics", body)
        assert answer.status == 201, answer
        await self.until(lambda: not self.cluster.unsettled())

    async def leader(self, part: Part = ORDERS) -> str:
        return (await self.client.leader_of(part)).host

    async def produce(
        self, host: str, *values: str, part: Part = ORDERS, producer: Producer | None = None
    ) -> tuple[int, int]:
        """With `acks=all`, to this node: the error and the offset."""
        kinds = requests("produce")
        batch = new_batch(values, producer or Producer(-1, -1, -1), now_ms(), is_transactional=False)
        rows = [kinds.PartitionProduceData(index=part.partition, records=batch)]
        topic = kinds.TopicProduceData(name=part.topic, partition_data=rows)
        answer = await self.client.ask(host, "produce", 9, acks=-1, timeout_ms=30_000, topic_data=[topic])
        result = answer.responses[0].partition_responses[0]
        return result.error_code, result.base_offset


def in_cluster(
    play: Callable[[PlayedCluster], Coroutine[Any, Any, T]], *, size: int = 3, has_racks: bool = False
) -> T:
    """`has_racks`: each node stands in a rack of its name, and clients that are there read from it."""

    async def main(loop: SimLoop) -> T:
        played = PlayedCluster(loop, size, has_racks=has_racks)
        try:
            await played.begin()
            return await play(played)
        finally:
            await played.end()

    return run(main, seed=1)
