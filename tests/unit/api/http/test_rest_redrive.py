"""Redrive over REST: dead letters go back to work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.asgi import Client, Json
from tests.support.nodes import World, create, read_all, simulate

from goqueue.api.http.app import RestApi
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll

TARGET = "/topics/orders.dlq/redrive"


def living(scenario: Callable[[Client, Node], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await scenario(Client(RestApi(node, world.clock)), node)

        await world.live(life)

    simulate(main)


async def reject(client: Client, node: Node, *values: str, reason: str = "bad") -> None:
    """Publish messages and reject them; back when they are dead letters."""
    body = {"messages": [{"value": value, "key": value, "headers": {"color": value}} for value in values]}
    assert (await client.post("/topics/orders/messages", body)).status == 200
    given = await node.queue.poll(Poll("workers", "anna", [("orders", 0)], len(values)))
    handles = [one.receipt for one in given]
    response = await client.post("/messages/reject/batch", {"receipt_handles": handles, "reason": reason})
    assert response.status == 200
    await asyncio.sleep(1)


async def redrive(client: Client, **body: Json) -> Json:
    response = await client.post(TARGET, body)
    assert response.status == 200, response.json()
    return response.json()


async def values(node: Node, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in await read_all(node, topic)]


def test_dead_letters_go_back_once() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a", "b")
        assert await redrive(client) == {
            "moved": 2,
            "failed": 0,
            "matched": 2,
            "pending": 0,
            "parked": 0,
            "skipped": 0,
            "remaining": 0,
            "dry_run": False,
            "errors": [],
        }
        assert await values(node) == [b"a", b"b", b"a", b"b"]
        assert (await redrive(client))["moved"] == 0

    living(scenario)


def test_a_dry_run_moves_nothing() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a", "b")
        answer = await redrive(client, dry_run=True)
        assert (answer["dry_run"], answer["moved"], answer["remaining"]) == (True, 2, 2)
        assert await values(node) == [b"a", b"b"]

    living(scenario)


@pytest.mark.parametrize(
    "filter",
    [
        {"key": "b"},
        {"key_base64": "Yg=="},
        {"headers": {"color": "b"}},
        {"from_offset": 1, "to_offset": 2},
        {"error_contains": "second"},
        {"reason": "rejected", "group": "workers", "partition": 0, "from_offset": 1},
        {"from_offset": 1, "from_time": "2001-01-01T00:00:00Z", "to_time": "9000-01-01T00:00:00Z"},
    ],
)
def test_only_what_was_asked_for_goes(filter: Json) -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a", reason="the first")
        await reject(client, node, "b", reason="the second")
        answer = await redrive(client, filter=filter)
        assert (answer["moved"], answer["skipped"], answer["remaining"]) == (1, 1, 1)
        assert await values(node) == [b"a", b"b", b"b"]
        assert (await redrive(client))["moved"] == 1

    living(scenario)


@pytest.mark.parametrize(
    "filter", [{"group": "others"}, {"to_time": "2001-01-01T00:00:00Z"}, {"reason": "retries exhausted"}]
)
def test_what_does_not_match_stays(filter: Json) -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a")
        answer = await redrive(client, filter=filter)
        assert (answer["moved"], answer["skipped"], answer["remaining"]) == (0, 1, 1)

    living(scenario)


def test_a_single_message_a_limit_and_another_topic() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await create(node, "repaired")
        await reject(client, node, "a", "b", "c", "d")
        assert (await redrive(client, partition=0, offset=2, to="repaired"))["moved"] == 1
        assert await values(node, "repaired") == [b"c"]
        assert (await redrive(client, limit=1, per_second=10))["moved"] == 1
        assert (await values(node))[4:] == [b"a"]
        assert (await redrive(client))["moved"] == 2

    living(scenario)


def test_a_message_that_comes_back_too_often_is_parked() -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a")
        assert (await redrive(client, max_redrives=1))["moved"] == 1
        (again,) = await node.queue.poll(Poll("workers", "anna", [("orders", 0)], 1))
        await client.post("/messages/reject", {"receipt_handle": again.receipt, "reason": "still bad"})
        await asyncio.sleep(1)
        answer = await redrive(client, max_redrives=1)
        assert (answer["moved"], answer["parked"]) == (0, 1)
        assert (await redrive(client, max_redrives=1, force=True))["moved"] == 1

    living(scenario)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"to": "orders.dlq"}, 400, "cannot be redriven into itself"),
        ({"to": "nowhere"}, 404, "nowhere"),
        ({"to": "../etc"}, 400, "../etc"),
        ({"limit": 0}, 400, "$.limit"),
        ({"limit": 10**9}, 400, "$.limit"),
        ({"per_second": 0}, 400, "$.per_second"),
        ({"offset": 0}, 400, "needs a partition"),
        ({"partition": 9}, 404, "no partition 9"),
        ({"partition": 0, "offset": 99}, 416, "99"),
        ({"filter": {"key": "a", "key_base64": "YQ=="}}, 400, "give one of them"),
        ({"filter": {"from_time": "yesterday"}}, 400, "$.filter.from_time is wrong: 'yesterday'"),
        ({"filter": {"colour": "red"}}, 400, "colour"),
        ({"dryrun": True}, 400, "dryrun"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_moves(body: Json, status: int, said: str) -> None:
    async def scenario(client: Client, node: Node) -> None:
        await reject(client, node, "a")
        response = await client.post(TARGET, body)
        assert (response.status, said in response.json()["error"]) == (status, True), response.json()
        assert await values(node) == [b"a"]

    living(scenario)


def test_a_topic_that_is_missing_is_not_found() -> None:
    async def scenario(client: Client, node: Node) -> None:
        response = await client.post(TARGET, {})
        assert (response.status, response.json()["code"]) == (404, "TOPIC_NOT_FOUND")

    living(scenario)
