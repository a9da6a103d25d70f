"""Members of queue groups over REST: they compete, each message is one member's at a time, and acks count."""

from __future__ import annotations

import pytest
from tests.support.rest_groups import Member, Rest, with_lives, with_rest


def test_more_members_than_partitions_share_the_work() -> None:
    async def main(rest: Rest) -> None:
        members = [await rest.join("q", mode="queue") for _ in range(5)]
        assert all(len(member.partitions) == 3 for member in members)
        await rest.publish(*(str(number) for number in range(20)))
        got = [await member.poll(limit=4) for member in members]
        assert [len(one) for one in got] == [4] * 5
        assert sorted((value for values in got for value in values), key=int) == [
            str(number) for number in range(20)
        ]

    with_rest(main)


def test_a_message_carries_its_receipt_and_how_often_it_was_given() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a")
        member = await rest.join("q", mode="queue")
        (got,) = (await member.polled(visibility="2s"))["messages"]
        assert (got["value"], got["delivery_count"]) == ("a", 1)
        await rest.sleep(10)
        (again,) = (await member.polled())["messages"]
        assert again["delivery_count"] == 2
        assert again["receipt_handle"] != got["receipt_handle"]
        status, _ = await rest.refused("/messages/ack", {"receipt_handle": got["receipt_handle"]})
        assert status == 409
        await rest.post("/messages/ack", {"receipt_handle": again["receipt_handle"]})
        assert await member.poll(timeout="60s") == []

    with_rest(main)


def test_trap_12_two_queue_groups_and_a_stream_all_get_every_message() -> None:
    async def main(rest: Rest) -> None:
        one, two = await rest.join("one", mode="queue"), await rest.join("two", mode="queue")
        three = await rest.join("three")
        await rest.publish("a", "b")
        for member in (one, two, three):
            assert await member.poll() == ["a", "b"]

    with_rest(main)


def test_trap_17_a_queue_on_three_topics_gets_all_three() -> None:
    async def main(rest: Rest) -> None:
        for topic in ("a", "b"):
            await rest.node.topics.create(topic, partition_count=1, overrides={})
        member = await rest.join("q", "orders", "a", "b", mode="queue")
        for topic in ("orders", "a", "b"):
            await rest.publish(f"from {topic}", topic=topic)
        assert sorted(await member.poll()) == ["from a", "from b", "from orders"]

    with_rest(main)


def test_trap_16_an_idle_poll_of_a_queue_ends_with_an_empty_200_and_keeps_the_member() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue", session_timeout="4s")
        began = rest.loop.time()
        assert await member.poll(timeout="30s") == []
        assert rest.loop.time() - began == pytest.approx(30, abs=0.5)
        assert await member.poll() == []

    with_rest(main)


def test_a_waiting_poll_wakes_for_data_and_for_what_others_give_back() -> None:
    async def main(rest: Rest) -> None:
        first, second = await rest.join("q", mode="queue"), await rest.join("q", mode="queue")
        polling = rest.start(first.poll(timeout="30s"))
        await rest.sleep(5)
        await rest.publish("a")
        assert await polling == ["a"]
        polling = rest.start(second.poll(timeout="30s"))
        await rest.sleep(5)
        left = rest.loop.time()
        await first.call("leave")
        assert await polling == ["a"]
        assert rest.loop.time() - left < 5

    with_rest(main)


def test_new_partitions_of_a_topic_are_served_too() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue")
        await rest.node.topics.grow("orders", 4)
        await rest.publish("new", partition=3)
        assert await member.poll(timeout="10s") == ["new"]

    with_rest(main)


def test_a_silent_member_is_gone_and_what_it_held_is_given_to_another() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a")
        silent = await rest.join("q", mode="queue", session_timeout="2s")
        assert await silent.poll(visibility="1h") == ["a"]
        other = await rest.join("q", mode="queue")
        assert await other.poll(timeout="20s") == ["a"]
        assert await rest.refused(silent.poll_path()) == (404, "UNKNOWN_MEMBER")

    with_rest(main)


def test_acks_and_members_survive_a_crash() -> None:
    members: list[Member] = []

    async def before(rest: Rest) -> None:
        await rest.publish("a", "b")
        member = await rest.join("q", mode="queue")
        handles = [one["receipt_handle"] for one in (await member.polled(visibility="10s"))["messages"]]
        await rest.post("/messages/ack", {"receipt_handle": handles[0]})
        members.append(member)

    async def after(rest: Rest) -> None:
        member = members[0]
        member.rest = rest
        got = (await member.polled(timeout="30s"))["messages"]
        assert [(one["value"], one["delivery_count"]) for one in got] == [("b", 2)]

    with_lives(before, after)


@pytest.mark.parametrize(
    "change", [{"strategy": "range"}, {"auto_commit": True}, {"rebalance_timeout": "10s"}]
)
def test_what_means_nothing_to_a_queue_is_refused(change: dict[str, object]) -> None:
    async def main(rest: Rest) -> None:
        body = {"client_id": "c", "topics": ["orders"], "mode": "queue", **change}
        assert await rest.refused("/groups/q/join", body) == (400, "INVALID_REQUEST")

    with_rest(main)


def test_a_group_has_one_mode() -> None:
    async def main(rest: Rest) -> None:
        await rest.join("s")
        await rest.join("q", mode="queue")
        for group, mode in (("s", "queue"), ("q", "stream")):
            body = {"client_id": "c", "topics": ["orders"], "mode": mode}
            assert await rest.refused(f"/groups/{group}/join", body) == (409, "INCONSISTENT_GROUP_PROTOCOL")

    with_rest(main)


@pytest.mark.parametrize("visibility", ["13h", "0", "soon", "-1s"])
def test_a_visibility_that_cannot_be_is_refused(visibility: str) -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue")
        status, code = await rest.refused(member.poll_path(visibility=visibility))
        assert status == 400
        assert code in ("INVALID_VISIBILITY", "INVALID_REQUEST")

    with_rest(main)


@pytest.mark.parametrize(("change", "status"), [({"generation": 77}, 409), ({"member_id": "nobody"}, 404)])
def test_stale_and_unknown_members_of_a_queue_are_refused(change: dict[str, object], status: int) -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue")
        assert (await member.refused("heartbeat", **change))[0] == status
        assert (await member.refused("leave", **change))[0] == status
        assert (await rest.refused(member.poll_path(**change)))[0] == status
        assert (await member.call("heartbeat"))["state"] == "complete"

    with_rest(main)


def test_settings_of_a_group_are_its_own() -> None:
    async def main(rest: Rest) -> None:
        response = await rest.client.request(
            "PATCH", "/groups/q", b'{"config": {"visibility.ms": 2000, "max.retries": "9"}}'
        )
        assert response.status == 200
        assert response.json() == {"id": "q", "config": {"max.retries": "9", "visibility.ms": "2000"}}
        await rest.publish("a")
        member = await rest.join("q", mode="queue")
        assert await member.poll() == ["a"]
        began = rest.loop.time()
        assert await member.poll(timeout="30s") == ["a"]
        assert rest.loop.time() - began < 10
        assert (await rest.get("/groups/q"))["config"]["visibility.ms"] == "2000"
        response = await rest.client.request("PATCH", "/groups/q", b'{"config": {"visibility.ms": null}}')
        assert response.json()["config"] == {"max.retries": "9"}
        for wrong in (b'{"colour": "red"}', b'{"visibility.ms": "soon"}', b'{"dlq.topic": false}'):
            response = await rest.client.request("PATCH", "/groups/q", b'{"config": %s}' % wrong)
            assert (response.status, response.json()["code"]) == (400, "INVALID_SETTING")

    with_rest(main)
