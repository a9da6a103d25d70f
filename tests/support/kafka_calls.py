"""The Kafka APIs of a node without a socket: every request and answer passes through the codec of its version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from tests.support.nodes import CONFIG, World, simulate

from goqueue.api.kafka.app import served_apis
from goqueue.api.kafka.call import Call, Closing
from goqueue.api.kafka.context import Context
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.wire.codec import Output, request_reader, request_writer, response_reader, response_writer
from goqueue.wire.schema import request_schema


def requests(api: str) -> Any:  # the classes are made at run time
    """The classes of a request by their names."""
    return SimpleNamespace(**request_schema(api).classes)


class Kafka:
    def __init__(self, node: Node) -> None:
        self._apis = {api.name: api for api in served_apis(Context(node, "broker.example", 9092))}

    def versions(self, api: str) -> range:
        return range(self._apis[api].first, self._apis[api].last + 1)

    async def call(self, api: str, version: int, **fields: Any) -> Any:
        """The answer to a request with these fields, as a client of that version sees it."""
        return await self.call_over(Closing(), api, version, **fields)

    async def call_over(self, closing: Closing, api: str, version: int, **fields: Any) -> Any:
        """The same, over a connection with this end."""
        assert version in self.versions(api)
        schema = request_schema(api)
        sent = Output()
        request_writer(api, version)(sent, schema.classes[schema.root](**fields))
        request = request_reader(api, version)(bytes(sent), 0)
        call = Call(api, version, 1, "test", "127.0.0.1", closing)
        answer = await self._apis[api].handle(call, request)
        received = Output()
        response_writer(api, version)(received, answer)
        return response_reader(api, version)(b"".join(received.pieces()), 0)


Main = Callable[[Kafka, Node], Awaitable[None]]


def with_kafka(main: Main, *, config: NodeConfig = CONFIG) -> None:
    """Run `main` against a node that has started, in virtual time."""

    async def scenario(world: World) -> None:
        await world.live(lambda node: main(Kafka(node), node))

    simulate(scenario, config=config)
