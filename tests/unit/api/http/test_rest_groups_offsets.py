"""Where groups are, and how an operator sends them elsewhere."""

from __future__ import annotations

import pytest
from tests.support.asgi import Json
from tests.support.rest_groups import Rest, with_rest

from goqueue.model.duration import format_instant


async def published(rest: Rest) -> None:
    """Five messages in each of three partitions, a second apart."""
    for number in range(5):
        for index in range(3):
            await rest.publish(f"{index}-{number}", partition=index)
        await rest.sleep(1)


async def reset(rest: Rest, **body: object) -> list[tuple[int, int | None, int]]:
    """Partition, old and new offset."""
    answer = await rest.post("/groups/g/offsets/reset", body)
    return [(one["partition"], one["old_offset"], one["new_offset"]) for one in answer["offsets"]]


async def offsets(rest: Rest, group: str = "g") -> Json:
    return (await rest.get(f"/groups/{group}/offsets"))["offsets"]


def test_a_stream_group_can_be_sent_to_every_kind_of_place() -> None:
    async def main(rest: Rest) -> None:
        began_ms = rest.node.clock.now_ms()
        await published(rest)
        topic = {"topic": "orders"}
        assert await reset(rest, to="latest", **topic) == [(0, None, 5), (1, None, 5), (2, None, 5)]
        assert await reset(rest, to="earliest", partitions=[1], **topic) == [(1, 5, 0)]
        assert await reset(rest, to="offset", offset=3, partitions=[0, 2], **topic) == [(0, 5, 3), (2, 5, 3)]
        at = format_instant(began_ms + 1_500)
        assert await reset(rest, to="timestamp", timestamp=at) == [(0, 3, 2), (1, 0, 2), (2, 3, 2)]
        later = str(began_ms + 3_600_000)
        assert await reset(rest, to="timestamp", timestamp=later) == [(0, 2, 5), (1, 2, 5), (2, 2, 5)]
        assert (await offsets(rest))["orders"]["0"] == {"offset": 5, "lag": 0}
        await reset(rest, to="offset", offset=4, partitions=[0], **topic)
        member = await rest.join()
        assert await member.poll() == ["0-4"]

    with_rest(main)


def test_a_dry_run_shows_and_changes_nothing() -> None:
    async def main(rest: Rest) -> None:
        await published(rest)
        member = await rest.join()
        await member.commit({0: 2})
        assert await reset(rest, to="earliest", topic="orders", partitions=[0], dry_run=True) == [(0, 2, 0)]
        assert await offsets(rest) == {"orders": {"0": {"offset": 2, "lag": 3}}}

    with_rest(main)


def test_a_stream_group_with_members_is_not_reset() -> None:
    async def main(rest: Rest) -> None:
        await published(rest)
        await rest.join()
        assert await rest.refused("/groups/g/offsets/reset", {"to": "earliest", "topic": "orders"}) == (
            409,
            "GROUP_NOT_EMPTY",
        )

    with_rest(main)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "tomorrow", "topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "offset", "topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "timestamp", "topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "timestamp", "timestamp": "noon", "topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "earliest", "offset": 3, "topic": "orders"}, 400, "INVALID_REQUEST"),
        ({"to": "offset", "offset": 3}, 400, "INVALID_REQUEST"),
        ({"to": "earliest", "partitions": [1]}, 400, "INVALID_REQUEST"),
        ({"to": "earliest"}, 404, "GROUP_NOT_FOUND"),
        ({"to": "earliest", "topic": "nowhere"}, 404, "TOPIC_NOT_FOUND"),
        ({"to": "earliest", "topic": "orders", "partitions": [9]}, 404, "PARTITION_NOT_FOUND"),
        ({"to": "offset", "offset": 6, "topic": "orders"}, 416, "OFFSET_OUT_OF_RANGE"),
        ({"to": "earliest", "topic": "orders", "colour": "red"}, 400, "INVALID_REQUEST"),
    ],
)
def test_a_bad_reset_is_refused_and_changes_nothing(body: Json, status: int, code: str) -> None:
    async def main(rest: Rest) -> None:
        await published(rest)
        assert await rest.refused("/groups/g/offsets/reset", body) == (status, code)
        assert (await rest.get("/groups"))["groups"] == []

    with_rest(main)


@pytest.mark.parametrize(
    ("offsets", "status", "code"),
    [
        ({}, 400, "INVALID_REQUEST"),
        ({"orders": {"0": -1}}, 400, "INVALID_REQUEST"),
        ({"orders": {"x": 1}}, 400, "INVALID_REQUEST"),
        ({"orders": {"0": 6}}, 416, "OFFSET_OUT_OF_RANGE"),
        ({"orders": {"7": 0}}, 404, "PARTITION_NOT_FOUND"),
        ({"nowhere": {"0": 0}}, 404, "TOPIC_NOT_FOUND"),
        ({"orders": {"0": 1, "9": 1}}, 404, "PARTITION_NOT_FOUND"),
    ],
)
def test_a_bad_commit_is_refused_and_changes_nothing(offsets: Json, status: int, code: str) -> None:
    async def main(rest: Rest) -> None:
        await published(rest)
        member = await rest.join()
        assert await member.refused("offsets", offsets=offsets) == (status, code)
        assert (await rest.get("/groups/g/offsets"))["offsets"] == {}

    with_rest(main)


def test_a_generation_without_a_member_is_refused() -> None:
    async def main(rest: Rest) -> None:
        body = {"offsets": {"orders": {"0": 0}}, "generation": 1}
        assert await rest.refused("/groups/g/offsets", body) == (400, "INVALID_REQUEST")

    with_rest(main)


def test_offsets_of_an_unknown_group_are_not_found() -> None:
    async def main(rest: Rest) -> None:
        assert await rest.refused("/groups/g/offsets") == (404, "GROUP_NOT_FOUND")

    with_rest(main)


def test_a_queue_shows_its_acknowledged_prefix_and_is_reset_while_it_is_read() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a", "b", "c")
        member = await rest.join("q", mode="queue")
        messages = (await member.polled())["messages"]
        handles = [one["receipt_handle"] for one in messages]
        await rest.post("/messages/ack", {"receipt_handle": handles[0]})
        assert (await offsets(rest, "q"))["orders"]["0"] == {"offset": 1, "lag": 2}
        body = {"to": "earliest", "topic": "orders", "partitions": [0]}
        answer = await rest.post("/groups/q/offsets/reset", {**body, "dry_run": True})
        assert answer["offsets"] == [{"topic": "orders", "partition": 0, "old_offset": 1, "new_offset": 0}]
        assert (await offsets(rest, "q"))["orders"]["0"]["offset"] == 1
        await rest.post("/groups/q/offsets/reset", body)
        assert (await rest.refused("/messages/ack", {"receipt_handle": handles[1]}))[0] == 409
        assert await member.poll() == ["a", "b", "c"]

    with_rest(main)


def test_nobody_commits_offsets_of_a_queue() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue")
        assert await member.commit_refused({0: 0}) == (409, "INCONSISTENT_GROUP_PROTOCOL")

    with_rest(main)
