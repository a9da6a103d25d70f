"""The REST API on a node for the length of one test: a real one in a temporary folder, or one in virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable

from tests.support.asgi import Client
from tests.support.nodes import World, simulate

from goqueue.api.http.app import RestApi
from goqueue.log.os_disk import OsDisk
from goqueue.node.clock import SystemClock
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node

Main = Callable[[Client, Node], Awaitable[None]]

DEFAULT = NodeConfig()


def with_api(main: Main, *, config: NodeConfig = DEFAULT, topic: str = "orders") -> None:
    """Run `main` against a node that has started and holds one topic of three partitions."""

    async def started(client: Client, node: Node) -> None:
        await node.start()
        await node.topics.create(topic, partition_count=3, overrides={})
        await main(client, node)

    with_unstarted_api(started, config=config)


def with_simulated_api(main: Main, *, topic: str = "orders") -> None:
    """As `with_api`, but time passes only where `main` waits: for what depends on how long something takes."""

    async def scenario(world: World) -> None:
        async def life(node: Node) -> None:
            await node.topics.create(topic, partition_count=3, overrides={})
            await main(Client(RestApi(node, world.clock)), node)

        await world.live(life)

    simulate(scenario)


def with_unstarted_api(main: Main, *, config: NodeConfig = DEFAULT) -> None:
    """As `with_api`, but `main` starts the node."""

    async def run(folder: str) -> None:
        clock = SystemClock()
        node = Node(config, OsDisk(folder), clock)
        try:
            await main(Client(RestApi(node, clock)), node)
        finally:
            await node.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder))
