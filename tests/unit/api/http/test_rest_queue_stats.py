"""How queues and their lanes stand, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.asgi import Client, Json
from tests.support.nodes import World, create, simulate
from tests.support.rest_api import with_api

from goqueue.api.http.app import RestApi
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered


def living(scenario: Callable[[Client, Node], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await scenario(Client(RestApi(node, world.clock)), node)

        await world.live(life)

    simulate(main)


async def publish(client: Client, *priorities: int) -> None:
    messages = [{"value": "v", "partition": 0, "priority": priority} for priority in priorities]
    assert (await client.post("/topics/orders/messages", {"messages": messages})).status == 200


async def poll(node: Node, limit: int, group: str = "workers") -> list[Delivered]:
    return await node.queue.poll(Poll(group, "anna", [("orders", 0)], limit))


def lane(stats: Json, priority: int, place: int = 0) -> Json:
    return stats["groups"][place]["lanes"][priority]


def test_reliability_counts_what_became_of_messages() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await publish(client, *[2] * 5)
        first, second, third, fourth, _ = await poll(node, 5)
        for action, given, more in (
            ("ack", first, {}),
            ("nack", second, {"delay": "1h"}),
            ("reject", third, {"reason": "never"}),
            ("visibility", fourth, {"timeout": "1h"}),
        ):
            response = await client.post(f"/messages/{action}", {"receipt_handle": given.receipt, **more})
            assert response.status == 200
        await asyncio.sleep(40)
        stats = (await client.get("/reliability/stats")).json()
        totals = stats["totals"]
        assert (totals["delivered"], totals["acked"], totals["nacked"]) == (5, 1, 1)
        assert (totals["rejected"], totals["extended"], totals["expired"]) == (1, 1, 1)
        (place,) = stats["groups"]
        assert (stats["count"], place["group"], place["topic"], place["partition"]) == (
            1,
            "workers",
            "orders",
            0,
        )
        assert (place["committed_offset"], place["end_offset"], place["lag"]) == (1, 5, 4)
        assert (place["in_flight"], place["waiting"]) == (1, 2)
        assert place["finished"] + place["dead"] == 2

    living(scenario)


def test_lanes_show_what_they_have_and_when_they_were_served() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await publish(client, 0, 0, 2, 2, 2, 4)
        given = await poll(node, 6)
        assert [one.lane for one in given].count(0) == 2
        await publish(client, 0, 4, 4, 2)
        critical = next(one for one in given if one.lane == 0)
        body = {"receipt_handle": critical.receipt, "delay": "1h"}
        assert (await client.post("/messages/nack", body)).status == 200
        assert await poll(node, 1) != []  # has the log looked at
        stats = (await client.get("/priority/stats")).json()
        place = stats["groups"][0]
        assert (stats["count"], place["group"], place["topic"], place["partition"]) == (
            1,
            "workers",
            "orders",
            0,
        )
        names = [(one["priority"], one["name"], one["weight"]) for one in place["lanes"]]
        assert names == [
            (0, "critical", 50),
            (1, "high", 25),
            (2, "normal", 15),
            (3, "low", 7),
            (4, "background", 3),
        ]
        shown = [(one["ready"], one["waiting"], one["in_flight"], one["served"]) for one in place["lanes"]]
        assert shown == [(0, 1, 2, 3), (0, 0, 0, 0), (1, 0, 3, 3), (0, 0, 0, 0), (2, 0, 1, 1)]
        assert lane(stats, 0)["served_per_second"] > lane(stats, 4)["served_per_second"] > 0
        assert (lane(stats, 1)["last_served"], lane(stats, 1)["served_per_second"]) == (None, 0)
        assert lane(stats, 2)["last_served"].endswith("Z")
        await asyncio.sleep(3_600)
        assert lane((await client.get("/priority/stats")).json(), 0)["served_per_second"] < 0.001

    living(scenario)


@pytest.mark.parametrize("path", ["/reliability/stats", "/priority/stats"])
def test_statistics_can_be_narrowed_and_paged(path: str) -> None:
    async def scenario(client: Client, node: Node) -> None:
        await publish(client, 1)
        for group in ("c", "a", "b"):
            await poll(node, 1, group)

        async def groups(query: str) -> tuple[list[str], int]:
            answer = (await client.get(path + query)).json()
            return [one["group"] for one in answer["groups"]], answer["count"]

        assert await groups("") == (["a", "b", "c"], 3)
        assert await groups("?group=b") == (["b"], 1)
        assert await groups("?topic=orders&limit=1&skip=1") == (["b"], 3)
        assert await groups("?topic=other") == ([], 0)

    living(scenario)


@pytest.mark.parametrize("path", ["/reliability/stats", "/priority/stats", "/delay/stats"])
def test_a_wrong_query_is_refused(path: str) -> None:
    async def main(client: Client, node: Node) -> None:
        for query in ("?limit=0", "?limit=1001", "?skip=-1", "?color=red"):
            assert (await client.get(path + query)).status == 400

    with_api(main)
