"""The batch forms: an answer for each receipt, in order."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.support.asgi import Client, Json, Response
from tests.support.rest_api import with_api

from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll

ACTIONS: dict[str, Json] = {
    "ack": {},
    "nack": {"delay": "1m", "reason": "later"},
    "reject": {"reason": "never"},
    "visibility": {"timeout": "1m"},
}


async def receipts(client: Client, node: Node, count: int = 3) -> list[str]:
    body = {"messages": [{"value": str(at), "partition": at % 2} for at in range(count)]}
    assert (await client.post("/topics/orders/messages", body)).status == 200
    places = [("orders", index) for index in range(3)]
    given = await node.queue.poll(Poll("workers", "anna", places, count))
    assert len(given) == count
    return [one.receipt for one in given]


async def finish(client: Client, action: str, handles: list[str]) -> Response:
    return await client.post(f"/messages/{action}/batch", {"receipt_handles": handles, **ACTIONS[action]})


@pytest.mark.parametrize("action", ACTIONS)
def test_a_good_batch_answers_200_with_a_result_for_each(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        handles = await receipts(client, node)
        response = await finish(client, action, handles)
        results = response.json()["results"]
        assert (response.status, [one["receipt_handle"] for one in results]) == (200, handles)
        assert {one["topic"] for one in results} == {"orders"}
        names = {"committed_offset", "in_flight_count", "partition", "offset"}
        assert all(names <= one.keys() and "error" not in one for one in results)

    with_api(main)


def test_each_kind_of_batch_says_what_its_single_form_says() -> None:
    async def main(client: Client, node: Node) -> None:
        handles = await receipts(client, node, 2)
        extended = (await finish(client, "visibility", handles)).json()["results"][0]
        assert "next_visible_at" in extended
        assert "action" not in extended
        nacked = (await finish(client, "nack", handles)).json()["results"][0]
        assert (nacked["action"], nacked["delivery_count"]) == ("retry", 1)
        assert nacked["next_visible_at"].endswith("Z")

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_batch_with_a_bad_receipt_answers_207_in_order(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        first, second, third = await receipts(client, node)
        assert (await finish(client, "ack", [second])).status == 200
        response = await finish(client, action, [first, second, "nonsense", third])
        results = response.json()["results"]
        assert response.status == 207
        codes = [one.get("code") for one in results]
        assert codes == [None, "MESSAGE_SETTLED", "RECEIPT_NOT_FOUND", None]
        assert "already" in results[1]["error"]
        assert [one["receipt_handle"] for one in results] == [first, second, "nonsense", third]

    with_api(main)


def test_a_batch_of_nothing_but_bad_receipts_has_the_status_of_the_first() -> None:
    async def main(client: Client, node: Node) -> None:
        (first,) = await receipts(client, node, 1)
        assert (await finish(client, "ack", [first])).status == 200
        response = await finish(client, "ack", [first, "nonsense"])
        assert (response.status, response.json()["code"]) == (409, "MESSAGE_SETTLED")
        assert [one["code"] for one in response.json()["results"]] == ["MESSAGE_SETTLED", "RECEIPT_NOT_FOUND"]

    with_api(main)


@pytest.mark.parametrize("action", ["ack", "nack", "reject"])
def test_a_receipt_that_is_named_twice_counts_once(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        (first,) = await receipts(client, node, 1)
        response = await finish(client, action, [first, first])
        results = response.json()["results"]
        assert (response.status, "error" in results[0], "error" in results[1]) == (207, False, True)

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_an_empty_batch_is_refused(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await finish(client, action, [])
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")

    with_api(main)


def test_a_batch_above_the_limit_is_refused() -> None:
    config = NodeConfig()
    config = structs.replace(config, limits=structs.replace(config.limits, messages_per_request_max=2))

    async def main(client: Client, node: Node) -> None:
        response = await finish(client, "ack", ["a", "b", "c"])
        assert (response.status, "1 to 2 receipts, not 3" in response.json()["error"]) == (400, True)

    with_api(main, config=config)
