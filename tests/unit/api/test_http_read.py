"""Reading over REST, waiting included."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import pytest
from tests.support.asgi import Client, Connection, Json
from tests.support.rest_api import with_api

from goqueue.model.acks import Acks
from goqueue.model.limits import Limits
from goqueue.model.record import Header, NewRecord
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage

TARGET = "/topics/orders/partitions/0/messages"


async def store(node: Node, *records: NewRecord) -> None:
    await node.publisher.publish("orders", [NewMessage(record, 0) for record in records], acks=Acks.ALL)


async def store_values(node: Node, count: int) -> None:
    for at in range(count):
        await store(node, NewRecord(None, b"%d" % at))


async def values(client: Client, query: str) -> list[str]:
    return [message["value"] for message in (await client.get(f"{TARGET}?{query}")).json()["messages"]]


def test_messages_are_read_with_everything_they_have() -> None:
    async def main(client: Client, node: Node) -> None:
        await store(node, NewRecord(b"k", "größe".encode(), (("h", b"1"),)))
        body = (await client.get(TARGET)).json()
        (message,) = body.pop("messages")
        assert datetime.fromisoformat(message.pop("timestamp")).tzinfo is UTC
        assert message == {"offset": 0, "key": "k", "value": "größe", "headers": {"h": "1"}, "priority": 2}
        assert body == {"next_offset": 1, "high_watermark": 1, "last_stable_offset": 1}

    with_api(main)


def test_an_empty_partition_is_an_empty_answer() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(TARGET)
        assert response.status == 200
        assert response.json() == {
            "messages": [],
            "next_offset": 0,
            "high_watermark": 0,
            "last_stable_offset": 0,
        }

    with_api(main)


@pytest.mark.parametrize(
    ("headers", "texts", "binary"),
    [
        ((), {}, None),
        ((("a", b"1"), ("b", None)), {"a": "1", "b": None}, None),
        ((("a", b"1"), ("b", b"2"), ("a", None)), {"a": ["1", None], "b": "2"}, None),
        ((("a", b"\xff"), ("b", b"2")), {"b": "2"}, {"a": "/w=="}),
        ((("a", b"1"), ("a", b"\xff"), ("b", None)), {"b": None}, {"a": ["MQ==", "/w=="]}),
    ],
)
def test_headers_are_text_where_they_can_be(headers: tuple[Header, ...], texts: Json, binary: Json) -> None:
    async def main(client: Client, node: Node) -> None:
        await store(node, NewRecord(None, b"v", headers))
        (message,) = (await client.get(TARGET)).json()["messages"]
        assert message["headers"] == texts
        assert message.get("headers_base64") == binary

    with_api(main)


def test_bytes_that_are_not_text_are_base64_and_the_others_stay_text() -> None:
    async def main(client: Client, node: Node) -> None:
        await store(node, NewRecord(b"\xff", b"text"), NewRecord(b"text", b"\xfe"), NewRecord(None, None))
        first, second, third = (await client.get(TARGET)).json()["messages"]
        assert (base64.b64decode(first["key_base64"]), first["value"]) == (b"\xff", "text")
        assert (second["key"], base64.b64decode(second["value_base64"])) == ("text", b"\xfe")
        assert (third["key"], third["value"]) == (None, None)
        assert "key" not in first
        assert "value" not in second
        assert not third.keys() & {"key_base64", "value_base64", "headers_base64"}

    with_api(main)


def test_offsets_bound_a_read() -> None:
    async def main(client: Client, node: Node) -> None:
        await store_values(node, 5)
        assert await values(client, "offset=3") == ["3", "4"]
        assert await values(client, "to_offset=2") == ["0", "1"]
        assert await values(client, "offset=1&to_offset=3&limit=1") == ["1"]
        assert await values(client, "offset=5") == []
        assert await values(client, "isolation=read_uncommitted&limit=1000") == ["0", "1", "2", "3", "4"]

    with_api(main)


def test_instants_bound_a_read_in_either_form() -> None:
    async def main(client: Client, node: Node) -> None:
        await store_values(node, 2)
        everything, nothing = ["0", "1"], list[str]()
        for past in ("0", "1999-12-31T23:59:59Z", "1999-12-31T23:59:59+02:00", "1900-01-01T00:00:00%2B00:00"):
            assert await values(client, f"timestamp={past}") == everything
            assert await values(client, f"to_timestamp={past}") == nothing
        for future in ("99999999999999", "2999-01-01T00:00:00.5Z"):
            assert await values(client, f"timestamp={future}") == nothing
            assert await values(client, f"to_timestamp={future}") == everything

    with_api(main)


@pytest.mark.parametrize(
    ("query", "mentions"),
    [
        ("offset=-1", "offset"),
        ("offset=abc", "offset"),
        ("offset=", "offset"),
        ("offset=null", "offset"),
        ("offset=9223372036854775808", "offset"),
        ("offset=0&timestamp=0", "offset or timestamp"),
        ("offset=0&offset=1", "'offset' is given twice"),
        ("off%73et=0&offset=1", "'offset' is given twice"),
        ("offzet=0", "'offzet'"),
        ("=0", "unknown query parameter ''"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("isolation=serializable", "isolation"),
        ("timestamp=yesterday", "RFC 3339"),
        ("timestamp=2026-01-01T00:00:00", "RFC 3339"),
        ("timestamp=-5", "RFC 3339"),
        ("to_timestamp=2026-13-01T00:00:00Z", "to_timestamp"),
        ("wait=soon", "wait"),
        ("wait=-1s", "wait"),
        ("wait=61s", "at most 60000ms"),
        ("wait=2m", "at most 60000ms"),
        ("wait=0.5s", "wait"),
        ("wait=01", "wait"),
        ("wait=99999999999999999999", "wait"),
        ("offset=%ff", "UTF-8"),
    ],
)
def test_a_wrong_query_is_refused_and_named(query: str, mentions: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(f"{TARGET}?{query}")
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert mentions in response.json()["error"]

    with_api(main)


@pytest.mark.parametrize("partition", ["x", "-1", "1.0", "", "%20", "99999999999999999999", "٣"])
def test_a_partition_that_is_no_number_is_refused(partition: str) -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(f"/topics/orders/partitions/{partition}/messages")
        assert (response.status, response.json()["code"]) == (400, "INVALID_REQUEST")

    with_api(main)


def test_partitions_and_offsets_that_do_not_exist_have_their_own_codes() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get("/topics/orders/partitions/3/messages")
        assert (response.status, response.json()["code"]) == (404, "PARTITION_NOT_FOUND")
        response = await client.get(f"{TARGET}?offset=1")
        assert (response.status, response.json()["code"]) == (416, "OFFSET_OUT_OF_RANGE")
        assert response.json()["details"] == {"offset": 1, "earliest": 0, "latest": 0}

    with_api(main)


def test_an_idle_long_poll_ends_with_an_empty_200() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(f"{TARGET}?wait=20ms")
        assert response.status == 200
        assert response.json()["messages"] == []
        assert node.stats()["parked_reads"] == 0

    with_api(main)


def test_a_long_poll_is_woken_by_data() -> None:
    async def main(client: Client, node: Node) -> None:
        connection = Connection([b""])
        polling = asyncio.create_task(client.run(connection, "GET", f"{TARGET}?wait=60s"))
        await connection.is_watched.wait()
        await store_values(node, 1)
        await polling
        assert [message["value"] for message in connection.response().json()["messages"]] == ["0"]

    with_api(main)


def test_a_long_poll_that_finds_data_does_not_watch_the_connection() -> None:
    async def main(client: Client, node: Node) -> None:
        await store_values(node, 1)
        connection = Connection([b""])
        await client.run(connection, "GET", f"{TARGET}?wait=60s")
        assert len(connection.response().json()["messages"]) == 1
        assert not connection.is_watched.is_set()

    with_api(main)


def test_a_long_poll_ends_when_its_client_goes_away() -> None:
    async def main(client: Client, node: Node) -> None:
        connection = Connection([b""])
        polling = asyncio.create_task(client.run(connection, "GET", f"{TARGET}?wait=60s"))
        await connection.is_watched.wait()
        assert node.stats()["parked_reads"] == 1
        connection.close()
        await polling
        assert connection.sent == []
        assert node.stats()["parked_reads"] == 0

    with_api(main)


def test_a_cancelled_long_poll_leaves_nothing_behind() -> None:
    async def main(client: Client, node: Node) -> None:
        before = asyncio.all_tasks()
        connection = Connection([b""])
        polling = asyncio.create_task(client.run(connection, "GET", f"{TARGET}?wait=60s"))
        await connection.is_watched.wait()
        started = asyncio.all_tasks() - before
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert all(task.done() for task in started)
        assert node.stats()["parked_reads"] == 0

    with_api(main)


def test_a_draining_node_lets_long_polls_go() -> None:
    async def main(client: Client, node: Node) -> None:
        connection = Connection([b""])
        polling = asyncio.create_task(client.run(connection, "GET", f"{TARGET}?wait=60s"))
        await connection.is_watched.wait()
        await node.drain()
        await polling
        assert connection.response().status == 200

    with_api(main)


def test_there_is_a_limit_to_waiting_readers() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get(f"{TARGET}?wait=60s")
        assert (response.status, response.json()["code"]) == (429, "LIMIT_EXCEEDED")

    with_api(main, config=NodeConfig(limits=Limits(parked_read_count_max=0)))
