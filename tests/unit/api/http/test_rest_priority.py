"""Priorities and traces of published messages."""

from __future__ import annotations

import pytest
from tests.support.asgi import Client, Json
from tests.support.rest_api import with_api

from goqueue.model.record import Header
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery

TARGET = "/topics/orders/messages"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def headers_of(node: Node) -> list[tuple[Header, ...]]:
    result = await node.reader.read("orders", 0, ReadQuery())
    return [record.headers for record in result.records]


@pytest.mark.parametrize(
    ("given", "priority", "headers"),
    [
        (0, 0, (("gq-priority", b"0"),)),
        ("critical", 0, (("gq-priority", b"0"),)),
        ("High", 1, (("gq-priority", b"1"),)),
        (2, 2, ()),
        ("normal", 2, ()),
        ("3", 3, (("gq-priority", b"3"),)),
        ("background", 4, (("gq-priority", b"4"),)),
        (4.0, 4, (("gq-priority", b"4"),)),
    ],
)
def test_a_priority_travels_as_a_header(given: Json, priority: int, headers: tuple[Header, ...]) -> None:
    async def main(client: Client, node: Node) -> None:
        body = {"messages": [{"value": "a", "partition": 0, "priority": given}]}
        response = await client.post(TARGET, body)
        assert response.json() == {
            "results": [{"partition": 0, "offset": 0, "priority": priority, "delayed": False}]
        }
        assert await headers_of(node) == [headers]
        (read,) = (await client.get("/topics/orders/partitions/0/messages")).json()["messages"]
        assert read["priority"] == priority

    with_api(main)


def test_a_priority_given_as_a_header_counts_as_well() -> None:
    async def main(client: Client, node: Node) -> None:
        message = {"value_base64": "/w==", "partition": 0, "headers": {"gq-priority": "low"}}
        (result,) = (await client.post(TARGET, {"messages": [message]})).json()["results"]
        assert result["priority"] == 3
        (read,) = (await client.get("/topics/orders/partitions/0/messages")).json()["messages"]
        assert (read["priority"], read["headers"]) == (3, {"gq-priority": "low"})

    with_api(main)


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"priority": 5}, "INVALID_PRIORITY", "priority is 5; it must be 0 to 4 or one of critical, high"),
        ({"priority": -1}, "INVALID_PRIORITY", "priority is -1"),
        ({"priority": "urgent"}, "INVALID_PRIORITY", "'urgent'"),
        ({"priority": ""}, "INVALID_PRIORITY", "priority is ''"),
        ({"headers": {"gq-priority": "9"}}, "INVALID_PRIORITY", "'9'"),
        ({"priority": 1, "headers": {"gq-priority": "1"}}, "INVALID_PRIORITY", "give one of them"),
        ({"traceparent": "abc"}, "INVALID_REQUEST", "traceparent is 'abc'"),
        (
            {"traceparent": TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)},
            "INVALID_REQUEST",
            "W3C",
        ),
        ({"traceparent": "ff" + TRACE[2:]}, "INVALID_REQUEST", "W3C"),
        ({"traceparent": TRACE, "headers": {"traceparent": TRACE}}, "INVALID_REQUEST", "give one of them"),
    ],
)
def test_a_wrong_field_refuses_its_message_and_no_other(fields: Json, code: str, said: str) -> None:
    async def main(client: Client, node: Node) -> None:
        good = {"value": "good", "partition": 0}
        response = await client.post(TARGET, {"messages": [good, {**good, **fields}, good]})
        first, wrong, last = response.json()["results"]
        assert (response.status, first["offset"], last["offset"]) == (207, 0, 1)
        assert (wrong["code"], wrong["offset"], said in wrong["error"]) == (code, None, True)
        alone = await client.post(TARGET, {"messages": [{**good, **fields}]})
        assert (alone.status, alone.json()["code"], len(alone.json()["results"])) == (400, code, 1)

    with_api(main)


@pytest.mark.parametrize("priority", [None, True, 1.5, [1], {}, 10**30, "x" * 101])
def test_a_priority_of_a_wrong_type_refuses_the_request(priority: Json) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.post(TARGET, {"messages": [{"value": "a", "priority": priority}]})
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert "$.messages[0].priority" in response.json()["error"]

    with_api(main)


def test_an_idempotent_request_with_a_wrong_priority_stores_nothing() -> None:
    async def main(client: Client, node: Node) -> None:
        producer = (await client.post("/producers/init", {})).json()
        messages = [{"value": "a", "partition": 0}, {"value": "b", "partition": 0, "priority": 7}]
        response = await client.post(TARGET, {"messages": messages, "sequence": 0, **producer})
        assert (response.status, response.json()["code"]) == (400, "INVALID_PRIORITY")
        assert await headers_of(node) == []

    with_api(main)


def test_refused_messages_are_counted() -> None:
    async def main(client: Client, node: Node) -> None:
        await client.post(TARGET, {"messages": [{"value": "a", "priority": 7}]})
        metrics = (await client.get("/metrics")).body.decode()
        assert 'goqueue_broker_refused_messages_total{code="INVALID_PRIORITY"} 1.0' in metrics

    with_api(main)


def test_a_trace_travels_as_a_header() -> None:
    async def main(client: Client, node: Node) -> None:
        message = {"value": "a", "partition": 0, "priority": "low", "traceparent": TRACE}
        assert (await client.post(TARGET, {"messages": [message]})).status == 200
        assert await headers_of(node) == [(("gq-priority", b"3"), ("traceparent", TRACE.encode()))]

    with_api(main)
