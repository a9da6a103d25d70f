"""Delayed messages over REST: publish, list, get, cancel."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs
from tests.support.asgi import Client, Json
from tests.support.nodes import World, create, simulate
from tests.support.rest_api import with_api, with_simulated_api

from goqueue.api.http.app import RestApi
from goqueue.model.duration import parse_instant_ms
from goqueue.model.settings import TopicSettings
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery

TARGET = "/topics/orders/messages"


def instant(seconds: float) -> str:
    """So many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def publish(client: Client, *messages: Json) -> list[Json]:
    body = {"messages": [{"value": "v", "partition": 0, **message} for message in messages]}
    response = await client.post(TARGET, body)
    assert response.status == 200, response.json()
    return list(response.json()["results"])


async def values(node: Node, partition: int = 0) -> list[bytes | None]:
    result = await node.reader.read("orders", partition, ReadQuery())
    return [record.value for record in result.records]


@pytest.mark.parametrize("delay", ["1h", "60m", "PT1H", 3_600_000, "3600000", "3600s"])
def test_a_delayed_message_says_when_it_is_due(delay: Json) -> None:
    async def main(client: Client, node: Node) -> None:
        before_ms = node.clock.now_ms()
        (result,) = await publish(client, {"delay": delay, "priority": "high"})
        assert (result["partition"], result["delayed"], result["priority"]) == (0, True, 1)
        assert 3_600_000 <= parse_instant_ms(result["deliverAt"]) - before_ms < 3_660_000
        assert await values(node) == []

    with_api(main)


def test_an_instant_is_kept_as_it_is() -> None:
    async def main(client: Client, node: Node) -> None:
        due = instant(3_600)
        (result,) = await publish(client, {"deliverAt": due})
        assert abs(parse_instant_ms(result["deliverAt"]) - parse_instant_ms(due)) <= 1

    with_api(main)


@pytest.mark.parametrize(
    "fields",
    [
        {"delay": 0},
        {"delay": "0s"},
        {"deliverAt": "2001-01-01T00:00:00Z"},
        {"deliverAt": "1960-01-01T00:00:00Z"},
    ],
)
def test_past_or_zero_is_at_once(fields: Json) -> None:
    async def main(client: Client, node: Node) -> None:
        (result,) = await publish(client, fields)
        assert (result["offset"], result["delayed"], "deliverAt" in result) == (0, False, False)
        assert await values(node) == [b"v"]

    with_api(main)


def test_a_message_arrives_when_it_is_due() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, {"delay": "100ms", "value": "late"}, {"value": "soon"})
        assert await values(node) == [b"soon"]
        result = await node.reader.read("orders", 0, ReadQuery(offset=1, wait_ms=10_000))
        assert [record.value for record in result.records] == [b"late"]
        assert (await client.get("/topics/orders/delayed")).json() == {"messages": [], "count": 0}

    with_simulated_api(main)


def test_delayed_messages_are_listed_soonest_first_and_found() -> None:
    async def main(client: Client, node: Node) -> None:
        second, first = await publish(client, {"delay": "2h"}, {"delay": "1h", "priority": 4, "partition": 1})
        answer = (await client.get("/topics/orders/delayed")).json()
        assert answer["count"] == 2
        soonest, later = answer["messages"]
        assert 3_500 < soonest.pop("time_remaining") <= 3_600
        assert soonest == {
            "topic": "orders",
            "partition": 1,
            "offset": first["offset"],
            "deliver_at": first["deliverAt"],
            "state": "pending",
            "priority": 4,
        }
        assert (later["partition"], later["offset"]) == (0, second["offset"])
        rest = (await client.get("/topics/orders/delayed?limit=1&skip=1")).json()
        assert [one["partition"] for one in rest["messages"]] == [0]
        found = await client.get(f"/topics/orders/delayed/1/{first['offset']}")
        assert (found.status, found.json()["deliver_at"]) == (200, first["deliverAt"])

    with_api(main)


def test_a_cancelled_message_is_gone() -> None:
    async def main(client: Client, node: Node) -> None:
        cancelled, kept = await publish(client, {"delay": "300ms"}, {"delay": "301ms", "value": "kept"})
        target = f"/topics/orders/delayed/0/{cancelled['offset']}"
        response = await client.request("DELETE", target)
        assert (response.status, response.json()) == (
            200,
            {"topic": "orders", "partition": 0, "offset": cancelled["offset"], "state": "cancelled"},
        )
        assert (await client.get(target)).status == 404
        result = await node.reader.read("orders", 0, ReadQuery(offset=0, wait_ms=10_000))
        assert [record.value for record in result.records] == [b"kept"]
        assert (await client.request("DELETE", target)).json()["code"] in (
            "SCHEDULE_NOT_FOUND",
            "SCHEDULE_FIRED",
        )
        late = await client.request("DELETE", f"/topics/orders/delayed/0/{kept['offset']}")
        assert (late.status, late.json()["code"]) == (409, "SCHEDULE_FIRED")

    with_simulated_api(main)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("place", "status", "code"),
    [
        ("orders/delayed/0/99", 404, "SCHEDULE_NOT_FOUND"),
        ("orders/delayed/9/0", 404, "PARTITION_NOT_FOUND"),
        ("nowhere/delayed/0/0", 404, "TOPIC_NOT_FOUND"),
        ("orders/delayed/x/0", 400, "INVALID_REQUEST"),
        ("orders/delayed/0/-1", 400, "INVALID_REQUEST"),
        ("orders/delayed/0/99999999999999999999", 400, "INVALID_REQUEST"),
    ],
)
def test_an_unknown_delayed_message_is_not_found(method: str, place: str, status: int, code: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.request(method, f"/topics/{place}")
        assert (response.status, response.json()["code"]) == (status, code)

    with_api(main)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delay": "1h", "deliverAt": "2030-01-01T00:00:00Z"}, "give one of them"),
        ({"delay": "soon"}, "'soon' is not a duration; write 250ms, 30s"),
        ({"delay": ""}, "'' is not a duration"),
        ({"delay": -1}, "delay is -1; it must be 0 or more"),
        ({"delay": "-5s"}, "'-5s' is not a duration"),
        ({"delay": "367d"}, "delay.max.ms is 31622400000"),
        ({"delay": "999999999999999d"}, "999999999999999d"),
        ({"deliverAt": "tomorrow"}, "'tomorrow' is not an instant; write RFC 3339"),
        ({"deliverAt": "2030-01-01T00:00:00"}, "is not an instant"),
        ({"deliverAt": "9000-01-01T00:00:00Z"}, "delay.max.ms is 31622400000"),
        ({"delay": "1h", "headers": {"gq-deliver-at": "2030-01-01T00:00:00Z"}}, "give one of them"),
        ({"headers": {"gq-deliver-at": "never"}}, "'never' is not an instant"),
    ],
)
def test_a_wrong_delay_refuses_its_message_and_no_other(fields: Json, said: str) -> None:
    async def main(client: Client, node: Node) -> None:
        good = {"value": "good", "partition": 0}
        response = await client.post(TARGET, {"messages": [good, {**good, **fields}]})
        assert response.status == 207
        stored, wrong = response.json()["results"]
        assert (stored["offset"], wrong["code"], wrong["offset"]) == (0, "INVALID_DELAY", None)
        assert said in wrong["error"]
        alone = await client.post(TARGET, {"messages": [{**good, **fields}]})
        assert (alone.status, alone.json()["code"]) == (400, "INVALID_DELAY")

    with_api(main)


def test_the_topics_own_limit_counts() -> None:
    config = structs.replace(NodeConfig(), topic_defaults=TopicSettings(delay_max_ms=60_000))

    async def main(client: Client, node: Node) -> None:
        response = await client.post(TARGET, {"messages": [{"value": "a", "delay": "61s"}]})
        assert (response.status, response.json()["code"]) == (400, "INVALID_DELAY")
        assert (await publish(client, {"delay": "59s"}))[0]["delayed"]

    with_api(main, config=config)


def test_the_statistics_of_delays_move() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            client = Client(RestApi(node, world.clock))
            await create(node)
            cancelled, *_ = await publish(client, {"delay": "1h"}, {"delay": "2h"}, {"delay": "5s"})
            await client.request("DELETE", f"/topics/orders/delayed/0/{cancelled['offset']}")
            await asyncio.sleep(6)
            stats = (await client.get("/delay/stats")).json()
            assert stats["totals"] == {"pending": 1, "parked": 0, "fired": 1, "cancelled": 1}
            assert stats["count"] == 1
            assert stats["partitions"] == [{"topic": "orders", "partition": 0, **stats["totals"]}]
            assert (await client.get("/delay/stats?topic=other")).json()["count"] == 0

        await world.live(life)

    simulate(main)
