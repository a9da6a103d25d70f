"""Ack, nack, reject and visibility over REST, each for one receipt."""

from __future__ import annotations

import pytest
from tests.support.asgi import Client, Json, Response
from tests.support.rest_api import with_api, with_simulated_api

from goqueue.api.http.ack_bodies import VISIBILITY_MS_MAX
from goqueue.core.lease import decisions
from goqueue.model.duration import parse_instant_ms
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered

ACTIONS: dict[str, Json] = {
    "ack": {},
    "nack": {},
    "reject": {"reason": "never"},
    "visibility": {"timeout": "1m"},
}


async def poll(node: Node, limit: int = 10, *, visibility_ms: int | None = None) -> list[Delivered]:
    places = [("orders", index) for index in range(3)]
    return await node.queue.poll(Poll("workers", "anna", places, limit, visibility_ms=visibility_ms))


async def publish(client: Client, *values: str) -> None:
    body = {"messages": [{"value": value, "partition": 1} for value in values]}
    assert (await client.post("/topics/orders/messages", body)).status == 200


async def finish(client: Client, action: str, receipt: str, **more: Json) -> Response:
    return await client.post(
        f"/messages/{action}", {"receipt_handle": receipt, **(more or ACTIONS.get(action, {}))}
    )


def test_an_ack_answers_where_it_leaves_the_group() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a", "b")
        first, second = await poll(node)
        response = await finish(client, "ack", second.receipt)
        assert (response.status, response.json()) == (
            200,
            {"topic": "orders", "partition": 1, "offset": 1, "committed_offset": 0, "in_flight_count": 1},
        )
        response = await finish(client, "ack", first.receipt)
        assert (response.json()["committed_offset"], response.json()["in_flight_count"]) == (2, 0)

    with_api(main)


def test_a_nack_answers_when_the_message_comes_again() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        response = await finish(client, "nack", given.receipt, delay="0s", reason="busy")
        answer = response.json()
        assert response.status == 200
        assert (answer["action"], answer["delivery_count"], answer["offset"]) == ("retry", 1, 0)
        assert (answer["committed_offset"], answer["in_flight_count"]) == (0, 0)
        (again,) = await poll(node)
        assert (again.deliveries, again.record.value) == (2, b"a")
        hour = await finish(client, "nack", again.receipt, delay=3_600_000)
        before_ms = parse_instant_ms(answer["next_visible_at"])
        assert 3_600_000 <= parse_instant_ms(hour.json()["next_visible_at"]) - before_ms < 3_700_000
        assert await poll(node) == []

    with_api(main)


def test_without_a_delay_the_backoff_counts() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        answer = (await finish(client, "nack", given.receipt)).json()
        assert answer["action"] == "retry"
        assert await poll(node) == []

    with_simulated_api(main)


def test_a_rejected_message_does_not_come_again() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "bad", "good")
        bad, _ = await poll(node)
        response = await finish(client, "reject", bad.receipt, reason="not JSON")
        assert (response.status, response.json()["committed_offset"]) == (200, 1)
        assert await poll(node) == []

    with_api(main)


@pytest.mark.parametrize("change", [{"timeout": "2h"}, {"timeout": 7_200_000}, {"extension_seconds": 7_170}])
def test_a_lease_can_be_prolonged(change: Json) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node, visibility_ms=30_000)
        response = await finish(client, "visibility", given.receipt, **change)
        answer = response.json()
        assert (response.status, answer["in_flight_count"], answer["committed_offset"]) == (200, 1, 0)
        later_ms = parse_instant_ms(answer["next_visible_at"]) - given.deadline_ms
        assert 7_170_000 <= later_ms < 7_180_000

    with_simulated_api(main)


def test_a_timeout_of_zero_gives_the_message_back() -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        answer = (await finish(client, "visibility", given.receipt, timeout=0)).json()
        assert answer["in_flight_count"] == 0
        (again,) = await poll(node)
        assert again.deliveries == 2

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "receipt", ["", "nonsense", "orders:1:0:1:1.0.AAAA", "x" * 2_000, "a:b:c:d:e", "ü:0:0:1:1.0.a"]
)
def test_an_unknown_or_forged_receipt_is_not_found(action: str, receipt: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        response = await finish(client, action, receipt)
        assert (response.status, response.json()["code"]) == (404, "RECEIPT_NOT_FOUND")
        assert (await finish(client, "ack", given.receipt)).status == 200  # nothing has changed

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_receipt_with_another_offset_is_forged(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a", "b")
        first, _ = await poll(node)
        forged = first.receipt.replace("orders:1:0:", "orders:1:1:")
        assert (await finish(client, action, forged)).status == 404

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("end", ["ack", "reject"])
def test_a_finished_message_is_finished(action: str, end: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        assert (await finish(client, end, given.receipt)).status == 200
        response = await finish(client, action, given.receipt)
        assert (response.status, response.json()["code"]) == (409, "MESSAGE_SETTLED")

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_lease_that_is_over_or_anothers_is_refused(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        assert (await finish(client, "nack", given.receipt, delay=0)).status == 200
        response = await finish(client, action, given.receipt)
        assert (response.status, response.json()["code"]) == (409, "LEASE_EXPIRED")
        (again,) = await poll(node)
        response = await finish(client, action, given.receipt)
        assert (response.status, response.json()["code"]) == (409, "LEASE_SUPERSEDED")
        assert (await finish(client, "ack", again.receipt)).status == 200

    with_api(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_receipt_of_a_deleted_topic_is_void(action: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        await node.topics.delete("orders")
        assert (await finish(client, action, given.receipt)).status == 404
        await node.topics.create("orders", partition_count=3, overrides={})
        await publish(client, "a")
        await poll(node)
        assert (await finish(client, action, given.receipt)).status == 404

    with_api(main)


@pytest.mark.parametrize(
    ("action", "more", "code", "said"),
    [
        ("nack", {"delay": "soon"}, "INVALID_REQUEST", "'soon' is not a duration"),
        ("nack", {"delay": -1}, "INVALID_REQUEST", "delay is -1 ms; it must be 0 to 43200000"),
        ("nack", {"delay": "13h"}, "INVALID_REQUEST", "delay is 46800000 ms"),
        ("nack", {"delay": "999999999999999d"}, "INVALID_REQUEST", "999999999999999d"),
        ("nack", {"delay": 10**30}, "INVALID_REQUEST", "$.delay"),
        ("nack", {"delay": True}, "INVALID_REQUEST", "$.delay"),
        ("nack", {"delay": 1.5}, "INVALID_REQUEST", "$.delay"),
        ("nack", {"reasons": "x"}, "INVALID_REQUEST", "reasons"),
        ("reject", {"reason": ""}, "INVALID_REQUEST", "$.reason"),
        ("reject", {"cause": "x"}, "INVALID_REQUEST", "cause"),
        ("visibility", {"timeout": "12h1s"}, "INVALID_REQUEST", "'12h1s' is not a duration"),
        (
            "visibility",
            {"timeout": "13h"},
            "INVALID_VISIBILITY",
            "46800000 ms is not possible; it must be 0 to 43200000",
        ),
        ("visibility", {"timeout": -5}, "INVALID_VISIBILITY", "-5 ms is not possible"),
        ("visibility", {"extension_seconds": -1}, "INVALID_REQUEST", "$.extension_seconds"),
        ("visibility", {"extension_seconds": 43_201}, "INVALID_REQUEST", "$.extension_seconds"),
        ("visibility", {"extension_seconds": 43_200}, "INVALID_VISIBILITY", "counted from the delivery"),
        ("visibility", {"timeout": 1, "extension_seconds": 1}, "INVALID_REQUEST", "both of timeout"),
        ("ack", {"receipt_handles": []}, "INVALID_REQUEST", "receipt_handles"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(action: str, more: Json, code: str, said: str) -> None:
    async def main(client: Client, node: Node) -> None:
        await publish(client, "a")
        (given,) = await poll(node)
        response = await finish(client, action, given.receipt, **more)
        assert (response.status, response.json()["code"]) == (400, code)
        assert said in response.json()["error"]
        assert (await finish(client, "ack", given.receipt)).status == 200

    with_api(main)


def test_visibility_needs_a_time_and_reject_a_reason() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post("/messages/visibility", {"receipt_handle": "x"})
        assert (response.status, "neither of timeout" in response.json()["error"]) == (400, True)
        response = await client.post("/messages/reject", {"receipt_handle": "x"})
        assert (response.status, "reason" in response.json()["error"]) == (400, True)
        response = await client.post("/messages/ack", {})
        assert (response.status, "receipt_handle" in response.json()["error"]) == (400, True)

    with_api(main)


def test_the_documented_maximum_is_the_one_in_force() -> None:
    assert VISIBILITY_MS_MAX == decisions.VISIBILITY_MS_MAX
