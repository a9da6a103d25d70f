"""Recurring schedules over REST: made, shown, deleted, and what is wrong said clearly."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.asgi import Client, Json
from tests.support.nodes import World, create, read_all, simulate
from tests.support.rest_api import with_api

from goqueue.api.http.app import RestApi
from goqueue.model.duration import parse_instant_ms
from goqueue.node.node import Node
from goqueue.node.schedule import recurring as recurring_module

TARGET = "/topics/orders/recurring"
FIVE_MINUTES = {"name": "report", "every": "5m", "message": {"key": "k", "value": "v"}}


async def refused(client: Client, status: int, **changes: Json) -> Json:
    """The error of a request that differs from a good one."""
    body = {name: value for name, value in {**FIVE_MINUTES, **changes}.items() if value is not None}
    response = await client.post(TARGET, body)
    assert response.status == status, response.json()
    return response.json()


def test_a_schedule_is_made_shown_listed_and_deleted() -> None:
    async def main(client: Client, node: Node) -> None:
        made = await client.post(TARGET, FIVE_MINUTES)
        assert made.status == 201, made.json()
        body = made.json()
        gap_ms = parse_instant_ms(body["next_fire_at"]) - parse_instant_ms(body["created_at"])
        assert gap_ms == 300_000
        assert (body["name"], body["topic"], body["state"], body["every"]) == (
            "report",
            "orders",
            "active",
            "5m",
        )
        assert (body["fired"], body["missed"], body["last_fire_at"], body["cron"]) == (0, 0, None, None)
        assert (await client.get(f"{TARGET}/report")).json() == body
        other = await client.post(TARGET, {**FIVE_MINUTES, "name": "another", "every": 1_500})
        assert other.json()["every"] == "1500ms"
        listed = (await client.get(TARGET)).json()
        assert [one["name"] for one in listed["schedules"]] == ["another", "report"]
        assert listed["count"] == 2
        page = (await client.get(f"{TARGET}?limit=1&skip=1")).json()
        assert page == {"schedules": [body], "count": 2}
        assert (await client.request("DELETE", f"{TARGET}/report")).json() == {
            "name": "report",
            "deleted": True,
        }
        for response in (
            await client.get(f"{TARGET}/report"),
            await client.request("DELETE", f"{TARGET}/report"),
        ):
            assert (response.status, response.json()["code"]) == (404, "SCHEDULE_NOT_FOUND")
        delayed = (await client.get("/topics/orders/delayed")).json()
        assert delayed["count"] == 1  # the next firing of the other

    with_api(main)


def test_the_same_again_gives_the_same_and_anything_else_is_a_conflict() -> None:
    async def main(client: Client, node: Node) -> None:
        made = await client.post(TARGET, FIVE_MINUTES)
        again = await client.post(TARGET, {**FIVE_MINUTES, "every": "300s"})
        assert (again.status, again.json()) == (201, made.json())
        for change in (
            {"every": "6m"},
            {"every": None, "cron": "*/5 * * * *"},
            {"message": {"key": "k", "value": "w"}},
            {"message": {"key": "k", "value": "v", "headers": {"a": "b"}}},
            {"message": {"key": "k", "value": "v", "partition": 1}},
            {"message": {"key": "k", "value": "v", "partition": 2}},
            {"max_fires": 3},
        ):
            error = await refused(client, 409, **change)
            assert error["code"] == "SCHEDULE_EXISTS"
            assert "'report'" in error["error"]
        assert (await client.get(TARGET)).json()["schedules"] == [made.json()]

    with_api(main)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"every": None}, "INVALID_SCHEDULE", ["neither every nor cron"]),
        ({"cron": "* * * * *"}, "INVALID_SCHEDULE", ["'5m'", "'* * * * *'", "one of them"]),
        ({"every": "soon"}, "INVALID_SCHEDULE", ["every", "'soon'", "30s"]),
        ({"every": "999ms"}, "INVALID_SCHEDULE", ["'999ms'", "1000 ms"]),
        ({"every": "4000d"}, "INVALID_SCHEDULE", ["'4000d'", "3660 days"]),
        ({"every": -1}, "INVALID_SCHEDULE", ["-1"]),
        ({"timezone": "UTC"}, "INVALID_SCHEDULE", ["'UTC'", "cron"]),
        ({"every": None, "cron": "* * * *"}, "INVALID_SCHEDULE", ["4 fields"]),
        ({"every": None, "cron": "* * * * * *"}, "INVALID_SCHEDULE", ["6 fields"]),
        ({"every": None, "cron": ""}, "INVALID_SCHEDULE", ["0 fields"]),
        ({"every": None, "cron": "60 * * * *"}, "INVALID_SCHEDULE", ["'60'", "minute"]),
        ({"every": None, "cron": "0 24 * * *"}, "INVALID_SCHEDULE", ["'24'", "hour"]),
        ({"every": None, "cron": "0 0 32 * *"}, "INVALID_SCHEDULE", ["'32'", "day of month"]),
        ({"every": None, "cron": "0 0 1 JAM *"}, "INVALID_SCHEDULE", ["JAM", "month"]),
        ({"every": None, "cron": "0 0 * * 8"}, "INVALID_SCHEDULE", ["'8'", "day of week"]),
        ({"every": None, "cron": "0 0 31 2 *"}, "INVALID_SCHEDULE", ["0 0 31 2 *", "never comes"]),
        ({"every": None, "cron": "* " * 200}, "INVALID_SCHEDULE", ["400 characters"]),
        ({"every": None, "cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "INVALID_SCHEDULE", ["Mars"]),
        ({"every": None, "cron": "0 0 * * *", "timezone": "../passwd"}, "INVALID_SCHEDULE", ["../passwd"]),
        ({"every": None, "cron": "0 0 * * *", "timezone": "Europe"}, "INVALID_SCHEDULE", ["'Europe'"]),
        ({"start_at": "tomorrow"}, "INVALID_SCHEDULE", ["start_at", "'tomorrow'"]),
        ({"end_at": "2026-01-01T00:00:00"}, "INVALID_SCHEDULE", ["end_at", "2026-01-01T00:00:00"]),
        ({"start_at": "9999-06-01T00:00:00Z"}, "INVALID_SCHEDULE", ["start_at", "9999"]),
        (
            {"start_at": "2100-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z"},
            "INVALID_SCHEDULE",
            ["2099", "not after", "2100"],
        ),
        ({"end_at": "2001-01-01T00:00:00Z"}, "INVALID_SCHEDULE", ["never fire"]),
        ({"max_fires": 0}, "INVALID_REQUEST", ["max_fires"]),
        ({"name": "a/b"}, "INVALID_NAME", ["a/b"]),
        ({"name": ".."}, "INVALID_NAME", [".."]),
        ({"name": ""}, "INVALID_NAME", ["empty"]),
        ({"name": "n" * 250}, "INVALID_NAME", ["249"]),
        ({"message": {"key": "k"}}, "INVALID_REQUEST", ["$.message", "value"]),
        ({"message": {"value": "v", "delay": "1s"}}, "INVALID_REQUEST", ["delay"]),
        ({"message": {"value": "v", "priority": 7}}, "INVALID_PRIORITY", ["7"]),
        ({"message": {"value": "v", "headers": {"gq-schedule": "x"}}}, "INVALID_SCHEDULE", ["gq-schedule"]),
        ({"message": {"value": "v", "headers": {"gq-deliver-at": "1"}}}, "INVALID_SCHEDULE", ["deliver"]),
        ({"more": 1}, "INVALID_REQUEST", ["more"]),
    ],
)
def test_what_is_wrong_is_named(changes: Json, code: str, words: list[str]) -> None:
    async def main(client: Client, node: Node) -> None:
        error = await refused(client, 400, **changes)
        assert error["code"] == code
        for word in words:
            assert word in error["error"]
        assert (await client.get(TARGET)).json()["count"] == 0

    with_api(main)


def test_a_message_must_fit_as_it_must_for_publish_and_its_partition_and_topic_must_be_there() -> None:
    async def main(client: Client, node: Node) -> None:
        large = await refused(client, 413, message={"value": "v" * 2_000_000})
        assert large["code"] == "MESSAGE_TOO_LARGE"
        nowhere = await refused(client, 404, message={"value": "v", "partition": 9})
        assert nowhere["code"] == "PARTITION_NOT_FOUND"
        for response in (
            await client.post("/topics/none/recurring", FIVE_MINUTES),
            await client.get("/topics/none/recurring"),
            await client.get("/topics/none/recurring/report"),
            await client.request("DELETE", "/topics/none/recurring/report"),
        ):
            assert (response.status, response.json()["code"]) == (404, "TOPIC_NOT_FOUND")
        assert (await client.get(f"{TARGET}/a%2Fb")).json()["code"] == "INVALID_NAME"

    with_api(main)


def test_a_topic_has_so_many_schedules_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring_module, "RECURRING_COUNT_MAX", 3)

    async def main(client: Client, node: Node) -> None:
        for name in ("a", "b", "c"):
            assert (await client.post(TARGET, {**FIVE_MINUTES, "name": name})).status == 201
        assert (await refused(client, 429))["code"] == "LIMIT_EXCEEDED"
        assert (await client.post(TARGET, {**FIVE_MINUTES, "name": "a"})).status == 201
        await client.request("DELETE", f"{TARGET}/b")
        assert (await client.post(TARGET, FIVE_MINUTES)).status == 201

    with_api(main)


def test_messages_say_which_schedule_sent_them_and_when_they_were_due() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node, partition_count=3)
            client = Client(RestApi(node, world.clock))
            message = {"value_base64": "/wA=", "headers": {"a": "b"}, "priority": "high", "partition": 1}
            body = {"name": "beat", "every": "10s", "message": message, "max_fires": 2}
            made = (await client.post(TARGET, body)).json()
            assert made["partition"] == 1
            await asyncio.sleep(60)
            first, second = await read_all(node, partition=1)
            assert first.value == second.value == b"\xff\x00"
            assert first.headers == (
                ("a", b"b"),
                ("gq-priority", b"1"),
                ("gq-schedule", b"beat"),
                ("gq-scheduled-at", made["next_fire_at"].encode()),
            )
            due_ms = parse_instant_ms(made["next_fire_at"])
            assert parse_instant_ms((second.headers[-1][1] or b"").decode()) == due_ms + 10_000
            shown = (await client.get(f"{TARGET}/beat")).json()
            assert (shown["state"], shown["next_fire_at"], shown["fired"], shown["missed"]) == (
                "finished",
                None,
                2,
                0,
            )
            assert 0 <= parse_instant_ms(shown["last_fire_at"]) - due_ms - 10_000 < 100

        await world.live(live)

    simulate(main)


def test_cancelling_the_message_that_waits_skips_one_firing() -> None:
    async def main(world: World) -> None:
        async def live(node: Node) -> None:
            await create(node)
            client = Client(RestApi(node, world.clock))
            made = (await client.post(TARGET, {**FIVE_MINUTES, "every": "10s"})).json()
            (waiting,) = (await client.get("/topics/orders/delayed")).json()["messages"]
            assert waiting["deliver_at"] == made["next_fire_at"]
            cancelled = await client.request("DELETE", f"/topics/orders/delayed/0/{waiting['offset']}")
            assert cancelled.status == 200
            shown = (await client.get(f"{TARGET}/report")).json()
            gap_ms = parse_instant_ms(shown["next_fire_at"]) - parse_instant_ms(made["next_fire_at"])
            assert gap_ms == 10_000
            await asyncio.sleep(22)
            (record,) = await read_all(node)
            assert record.headers[-1] == ("gq-scheduled-at", shown["next_fire_at"].encode())
            again = await client.request("DELETE", f"/topics/orders/delayed/0/{waiting['offset']}")
            assert again.status == 404

        await world.live(live)

    simulate(main)
