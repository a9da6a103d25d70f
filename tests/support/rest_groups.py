"""Members of groups over REST, on a node in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from tests.support.asgi import Client, Json, Response
from tests.support.nodes import CONFIG, End, World, create, simulate

from goqueue.api.http.app import RestApi
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node


class Rest:
    """The API of one node."""

    def __init__(self, node: Node, world: World) -> None:
        self.node = node
        self.loop = world.loop
        self.client = Client(RestApi(node, world.clock))

    async def get(self, path: str) -> Json:
        return _well(await self.client.get(path))

    async def post(self, path: str, body: object) -> Json:
        return _well(await self.client.post(path, body))

    async def refused(self, path: str, body: object | None = None) -> tuple[int, str]:
        """Status and code; with a body, of a POST."""
        response = await (self.client.get(path) if body is None else self.client.post(path, body))
        assert response.status >= 400, response.body
        error = response.json()
        assert error["status"] == response.status
        assert error["error"]
        return response.status, error["code"]

    async def publish(self, *values: str, topic: str = "orders", partition: int = 0) -> None:
        await self.post(
            f"/topics/{topic}/messages",
            {"messages": [{"value": one, "partition": partition} for one in values]},
        )

    async def join(self, group: str = "g", *topics: str, client_id: str = "c", **more: object) -> Member:
        body = {"client_id": client_id, "topics": list(topics or ("orders",)), **more}
        return Member(self, group, await self.post(f"/groups/{group}/join", body))

    async def join_cooperatively(self, group: str = "g", *topics: str, **more: object) -> Member:
        body = {"client_id": "c", "topics": list(topics or ("orders",)), **more}
        return Member(self, group, await self.post(f"/groups/{group}/join/cooperative", body))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def start(self, work: Awaitable[Json]) -> asyncio.Task[Json]:
        async def run() -> Json:
            return await work

        return asyncio.get_running_loop().create_task(run())


@dataclass
class Member:
    """It keeps the generation that it was last told."""

    rest: Rest
    group: str
    last: Json
    id: str = field(init=False)
    generation: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.last["member_id"]
        self.generation = self.last["generation"]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return places(self.last["assigned_partitions"])

    async def poll(self, **query: object) -> list[str]:
        """The values that it got."""
        return [message["value"] for message in (await self.polled(**query))["messages"]]

    async def polled(self, **query: object) -> Json:
        return self._heard(await self.rest.get(self.poll_path(**query)))

    def poll_path(self, **query: object) -> str:
        asked = {"member_id": self.id, "generation": self.generation, "timeout": "0", **query}
        return f"/groups/{self.group}/poll?" + "&".join(
            f"{name}={quote(str(value))}" for name, value in asked.items() if value is not None
        )

    async def call(self, what: str, **more: object) -> Json:
        body = {"member_id": self.id, "generation": self.generation, **more}
        return self._heard(await self.rest.post(f"/groups/{self.group}/{what}", body))

    async def refused(self, what: str, **more: object) -> tuple[int, str]:
        body = {"member_id": self.id, "generation": self.generation, **more}
        return await self.rest.refused(f"/groups/{self.group}/{what}", body)

    async def commit(self, offsets: dict[int, int]) -> Json:
        """By partition of `orders`."""
        return await self.call("offsets", offsets={"orders": offsets})

    async def commit_refused(self, offsets: dict[int, int]) -> tuple[int, str]:
        return await self.refused("offsets", offsets={"orders": offsets})

    def _heard(self, answer: Json) -> Json:
        if "generation" in answer:
            self.last = answer
            self.generation = answer["generation"]
        return answer


def places(partitions: Json) -> list[tuple[str, int]]:
    return [(one["topic"], one["partition"]) for one in partitions]


def with_rest(
    main: Callable[[Rest], Awaitable[None]], *, partition_count: int = 3, config: NodeConfig = CONFIG
) -> None:
    """One node with a topic `orders`, in virtual time."""

    async def world_main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=partition_count)
            await main(Rest(node, world))

        await world.live(life)

    simulate(world_main, config=config)


def with_lives(*mains: Callable[[Rest], Awaitable[None]], partition_count: int = 3) -> None:
    """As `with_rest`, with a kill -9 between each and the next."""

    async def world_main(world: World) -> None:
        for index, main in enumerate(mains):

            async def life(
                node: Node, main: Callable[[Rest], Awaitable[None]] = main, index: int = index
            ) -> None:
                if index == 0:
                    await create(node, partition_count=partition_count)
                await main(Rest(node, world))

            await world.live(life, end=End.KILL if index < len(mains) - 1 else End.STOP)

    simulate(world_main)


def _well(response: Response) -> Json:
    assert response.status == 200, response.body
    return response.json()
