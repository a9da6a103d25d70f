"""The REST API on a real node in a temporary folder, for the length of one test."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable

from tests.support.asgi import Client

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
