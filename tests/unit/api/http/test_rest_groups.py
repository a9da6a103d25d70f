"""Members of stream groups over REST: who reads what, from where, who waits for whom, and who is refused."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.asgi import Connection
from tests.support.rest_groups import Member, Rest, places, with_lives, with_rest


def test_a_member_alone_has_every_partition_and_reads_each_from_the_start() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a", "b", partition=0)
        await rest.publish("c", partition=2)
        member = await rest.join()
        assert member.partitions == [("orders", 0), ("orders", 1), ("orders", 2)]
        assert member.last["mode"] == "stream"
        assert not member.last["rebalance_required"]
        assert sorted(await member.poll()) == ["a", "b", "c"]
        assert await member.poll() == []

    with_rest(main)


def test_a_polled_message_says_where_it_is_from_and_has_no_receipt() -> None:
    async def main(rest: Rest) -> None:
        message = {"key": "k", "value": "v", "headers": {"h": "1"}, "priority": "high", "partition": 1}
        await rest.post("/topics/orders/messages", {"messages": [message]})
        member = await rest.join()
        (got,) = (await member.polled())["messages"]
        assert (got["topic"], got["partition"], got["offset"]) == ("orders", 1, 0)
        assert (got["key"], got["value"], got["headers"]["h"]) == ("k", "v", "1")
        assert got["priority"] == 1
        assert got["timestamp"].endswith("Z")
        assert "receipt_handle" not in got
        assert "delivery_count" not in got

    with_rest(main)


def test_bytes_that_are_no_text_are_polled_as_base64() -> None:
    async def main(rest: Rest) -> None:
        await rest.post("/topics/orders/messages", {"messages": [{"value_base64": "/w==", "partition": 0}]})
        (got,) = (await (await rest.join()).polled())["messages"]
        assert got["value_base64"] == "/w=="
        assert "value" not in got

    with_rest(main)


def test_a_limit_divides_what_there_is_and_loses_nothing() -> None:
    async def main(rest: Rest) -> None:
        for index in range(3):
            await rest.publish(*(f"{index}-{n}" for n in range(5)), partition=index)
        member = await rest.join()
        got: list[str] = []
        while more := await member.poll(limit=4):
            assert len(more) <= 4
            got += more
        assert len(got) == 15
        for index in range(3):
            assert [one for one in got if one.startswith(f"{index}-")] == [f"{index}-{n}" for n in range(5)]

    with_rest(main)


def test_trap_17_a_group_on_three_topics_gets_all_three() -> None:
    async def main(rest: Rest) -> None:
        for topic in ("a", "b"):
            await rest.node.topics.create(topic, partition_count=2, overrides={})
        member = await rest.join("g", "orders", "a", "b")
        await rest.publish("from orders", partition=1)
        await rest.publish("from a", topic="a", partition=0)
        await rest.publish("from b", topic="b", partition=1)
        assert sorted(await member.poll()) == ["from a", "from b", "from orders"]

    with_rest(main)


def test_trap_12_two_groups_on_one_topic_both_get_every_message() -> None:
    async def main(rest: Rest) -> None:
        first, second = await rest.join("one"), await rest.join("two")
        await rest.publish("a", "b")
        assert await first.poll() == ["a", "b"]
        assert await second.poll() == ["a", "b"]

    with_rest(main)


# -------------------------------------------------------------------- waiting


def test_trap_16_an_idle_long_poll_ends_with_an_empty_200() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        began = rest.loop.time()
        assert await member.poll(timeout="30s") == []
        assert rest.loop.time() - began == pytest.approx(30, abs=0.5)

    with_rest(main)


def test_a_poll_without_a_timeout_waits_thirty_seconds() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        began = rest.loop.time()
        assert await member.poll(timeout=None) == []
        assert rest.loop.time() - began == pytest.approx(30, abs=0.5)

    with_rest(main)


@pytest.mark.parametrize("partition", range(3))
def test_a_long_poll_wakes_when_data_arrives_in_any_partition(partition: int) -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        polling = rest.start(member.poll(timeout="30s"))
        await rest.sleep(10)
        await rest.publish("now", partition=partition)
        published = rest.loop.time()
        assert await polling == ["now"]
        assert rest.loop.time() - published < 0.1

    with_rest(main)


def test_a_member_that_waits_is_heard_of() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join(session_timeout="4s")
        for _ in range(3):
            assert await member.poll(timeout="20s") == []

    with_rest(main)


def test_a_poll_whose_client_has_gone_takes_nothing() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        connection = Connection([b""])
        waiting = asyncio.create_task(rest.client.run(connection, "GET", member.poll_path(timeout="30s")))
        await connection.is_watched.wait()
        await rest.sleep(1)
        connection.close()
        await waiting
        assert connection.sent == []
        await rest.publish("kept")
        assert await member.poll() == ["kept"]

    with_rest(main)


def test_a_stopping_broker_lets_a_waiting_poll_go() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        second = await rest.join("empty-handed")
        polls = [rest.start(one.poll(timeout="30s")) for one in (member, second)]
        await rest.sleep(1)
        began = rest.loop.time()
        await rest.node.drain()
        assert [await poll for poll in polls] == [[], []]
        assert rest.loop.time() - began < 0.1

    with_rest(main)


# -------------------------------------------------------------------- rebalances


def test_partitions_are_divided_and_none_has_two_readers() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join()
        second = await rest.join()
        assert second.partitions == []
        assert second.last["rebalance_required"]
        answer = await first.call("heartbeat")
        assert len(places(answer["partitions_to_revoke"])) == 1
        given_up = places(answer["partitions_to_revoke"])
        answer = await second.call("heartbeat")
        assert places(answer["partitions_assigned"]) == given_up
        assert sorted(first.partitions + second.partitions) == [("orders", n) for n in range(3)]
        assert not answer["rebalance_required"]

    with_rest(main)


def test_waiting_members_hear_of_a_rebalance_at_once() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join()
        polling = rest.start(first.polled(timeout="30s"))
        await rest.sleep(1)
        began = rest.loop.time()
        second = await rest.join()
        second_polling = rest.start(second.polled(timeout="30s"))
        assert (await polling)["messages"] == []
        assert (await second_polling)["messages"] == []
        assert rest.loop.time() - began < 0.5
        assert len(first.partitions) == 2
        assert len(second.partitions) == 1

    with_rest(main)


def test_a_member_that_waits_for_a_partition_gets_it_when_it_is_given_up() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join()
        second = await rest.join()
        polling = rest.start(second.polled(timeout="30s"))
        await rest.sleep(10.5)
        began = rest.loop.time()
        await first.call("heartbeat")
        await polling
        assert len(second.partitions) == 1
        assert rest.loop.time() - began < 0.5

    with_rest(main)


def test_what_was_not_committed_goes_to_the_new_reader() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a", "b", "c", partition=0)
        first = await rest.join()
        assert await first.poll() == ["a", "b", "c"]
        await first.commit({0: 1})
        await first.call("leave")
        second = await rest.join()
        assert await second.poll() == ["b", "c"]

    with_rest(main)


def test_a_silent_member_loses_its_partitions_to_the_other() -> None:
    async def main(rest: Rest) -> None:
        silent = await rest.join(session_timeout=2_000)
        other = await rest.join(session_timeout=60_000)
        await rest.publish("a", partition=0)
        got = await other.poll(timeout="30s")
        while not got and len(other.partitions) < 3:
            got += await other.poll(timeout="30s")
        got += await other.poll(timeout="1s")
        assert got == ["a"]
        assert await rest.refused(silent.poll_path()) == (404, "UNKNOWN_MEMBER")
        stats = await rest.get("/groups/g/rebalance/stats")
        assert stats["by_reason"]["member_expired"] == 1

    with_rest(main)


def test_new_partitions_are_read_too() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        await rest.node.topics.grow("orders", 4)
        await rest.publish("new", partition=3)
        got: list[str] = []
        for _ in range(3):
            got += await member.poll(timeout="10s")
        assert got == ["new"]

    with_rest(main)


def test_a_topic_made_again_under_its_name_is_read_from_its_start() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        await rest.publish("old", "old", "old")
        assert len(await member.poll()) == 3
        await rest.node.topics.delete("orders")
        await rest.node.topics.create("orders", partition_count=3, overrides={})
        await rest.publish("a", "b", "c", "d")
        got: list[str] = []
        for _ in range(4):
            got += await member.poll(timeout="4s")
        assert got == ["a", "b", "c", "d"]

    with_rest(main)


def test_the_strategy_of_most_members_counts() -> None:
    async def main(rest: Rest) -> None:
        await rest.join(strategy="range")
        assert (await rest.get("/groups/g"))["protocol"] == "range"
        assert await rest.refused(
            "/groups/g/join", {"client_id": "c", "topics": ["orders"], "strategy": "best"}
        ) == (400, "UNSUPPORTED_ASSIGNOR")

    with_rest(main)


def test_members_survive_a_crash_of_the_broker_and_go_on_from_what_is_committed() -> None:
    members: list[Member] = []

    async def before(rest: Rest) -> None:
        await rest.publish("a", "b", "c")
        member = await rest.join()
        assert await member.poll() == ["a", "b", "c"]
        await member.commit({0: 2})
        members.append(member)

    async def after(rest: Rest) -> None:
        member = members[0]
        member.rest = rest
        assert await member.poll() == ["c"]

    with_lives(before, after)


# -------------------------------------------------------------------- commits


def test_trap_18_a_zombies_commit_is_refused() -> None:
    async def main(rest: Rest) -> None:
        zombie = await rest.join()
        await rest.publish("a", "b", partition=0)
        await zombie.poll()
        other = await rest.join()
        generation = zombie.generation
        await zombie.call("heartbeat")
        await other.call("heartbeat")
        zombie.generation = generation
        assert await zombie.commit_refused({0: 2}) == (409, "STALE_MEMBER_EPOCH")
        await zombie.call("leave")
        assert await zombie.commit_refused({0: 2}) == (404, "UNKNOWN_MEMBER")
        assert (await rest.get("/groups/g/offsets"))["offsets"] == {}

    with_rest(main)


def test_only_partitions_that_are_assigned_may_be_committed() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a", partition=0)
        await rest.publish("a", partition=1)
        await rest.publish("a", partition=2)
        first, second = await rest.join(), await rest.join()
        await first.call("heartbeat")
        await second.call("heartbeat")
        ((_, theirs),) = second.partitions
        assert await first.commit_refused({theirs: 1}) == (403, "PARTITION_NOT_ASSIGNED")
        await second.commit({theirs: 1})

    with_rest(main)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"generation": 7}, 409, "FENCED_MEMBER_EPOCH"),
        ({"member_id": "nobody"}, 404, "UNKNOWN_MEMBER"),
    ],
)
def test_stale_and_unknown_members_are_refused_everywhere(
    change: dict[str, object], status: int, code: str
) -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        for what in ("heartbeat", "leave", "heartbeat/cooperative", "leave/cooperative"):
            assert await member.refused(what, **change) == (status, code)
        assert await member.refused("revoke", revoked_partitions=[], **change) == (status, code)
        assert await rest.refused(member.poll_path(**change)) == (status, code)
        assert (await member.call("heartbeat"))["state"] == "complete"

    with_rest(main)


def test_a_generation_that_was_just_replaced_is_still_heard_but_commits_nothing() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join()
        await rest.join()
        before = first.generation
        await first.call("heartbeat")
        first.generation = before  # the answer got lost
        await first.call("heartbeat")
        assert first.generation > before

    with_rest(main)


def test_auto_commit_follows_what_was_polled_before_the_last_poll() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a", "b", "c")
        member = await rest.join(auto_commit=True)
        assert await member.poll(limit=2) == ["a", "b"]
        await rest.sleep(6)
        await member.call("heartbeat")
        assert (await rest.get("/groups/g/offsets"))["offsets"].get("orders", {}).get("0") is None
        assert await member.poll(limit=2) == ["c"]
        await rest.sleep(6)
        await member.call("heartbeat")
        assert (await rest.get("/groups/g/offsets"))["offsets"]["orders"]["0"]["offset"] == 2
        await member.call("leave")
        assert (await rest.get("/groups/g/offsets"))["offsets"]["orders"]["0"] == {"offset": 3, "lag": 0}

    with_rest(main)


def test_auto_commit_goes_on_after_a_crash_of_the_broker() -> None:
    members: list[Member] = []

    async def before(rest: Rest) -> None:
        await rest.publish("a", "b")
        members.append(await rest.join(auto_commit=True))

    async def after(rest: Rest) -> None:
        member = members[0]
        member.rest = rest
        assert await member.poll() == ["a", "b"]
        await rest.sleep(6)
        await member.poll()
        assert (await rest.get("/groups/g/offsets"))["offsets"]["orders"]["0"]["offset"] == 2

    with_lives(before, after)


def test_nobody_else_commits_while_there_are_members() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a")
        body = {"offsets": {"orders": {"0": 1}}}
        assert (await rest.post("/groups/g/offsets", body))["offsets"]["orders"]["0"]["offset"] == 1
        member = await rest.join()
        assert await member.poll() == []
        assert await rest.refused("/groups/g/offsets", body) == (409, "GROUP_NOT_EMPTY")

    with_rest(main)


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"topics": ["orders"]}, 400, "INVALID_REQUEST"),
        ({"client_id": "c"}, 400, "INVALID_REQUEST"),
        ({"client_id": "c", "topics": []}, 400, "INVALID_REQUEST"),
        ({"client_id": "c", "topics": ["orders"], "colour": "red"}, 400, "INVALID_REQUEST"),
        ({"client_id": "c", "topics": ["nowhere"]}, 404, "TOPIC_NOT_FOUND"),
        ({"client_id": "c", "topics": ["../x"]}, 400, "INVALID_NAME"),
        ({"client_id": "c", "topics": ["__consumer_offsets"]}, 404, "TOPIC_NOT_FOUND"),
        ({"client_id": "c", "topics": ["orders"], "session_timeout": "1ms"}, 400, "INVALID_SESSION_TIMEOUT"),
        ({"client_id": "c", "topics": ["orders"], "session_timeout": 0}, 400, "INVALID_SESSION_TIMEOUT"),
        ({"client_id": "c", "topics": ["orders"], "session_timeout": "soon"}, 400, "INVALID_REQUEST"),
        ({"client_id": "c", "topics": ["orders"], "rebalance_timeout": "2h"}, 400, "INVALID_REQUEST"),
        ({"client_id": "c", "topics": ["orders"], "mode": "log"}, 400, "INVALID_REQUEST"),
    ],
)
def test_a_bad_join_is_refused_and_leaves_nothing(body: dict[str, object], status: int, code: str) -> None:
    async def main(rest: Rest) -> None:
        assert await rest.refused("/groups/g/join", body) == (status, code)
        assert (await rest.get("/groups"))["groups"] == []

    with_rest(main)


@pytest.mark.parametrize("group", ["..", "a%2Fb", "a%5Cb", "%2e%2e", "x" * 300, "a%00b", "a%0Ab"])
def test_trap_32_names_that_could_lead_elsewhere_are_refused(group: str) -> None:
    async def main(rest: Rest) -> None:
        join = {"client_id": "c", "topics": ["orders"]}
        assert await rest.refused(f"/groups/{group}/join", join) == (400, "INVALID_GROUP_ID")
        commit = {"offsets": {"orders": {"0": 0}}}
        assert await rest.refused(f"/groups/{group}/offsets", commit) == (400, "INVALID_GROUP_ID")

    with_rest(main)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"timeout": "2h"},
        {"timeout": "soon"},
        {"visibility": "1s"},
        {"colour": "red"},
    ],
)
def test_a_bad_poll_is_refused(query: dict[str, object]) -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        assert await rest.refused(member.poll_path(**query)) == (400, "INVALID_REQUEST")

    with_rest(main)


def test_groups_are_listed_described_and_deleted() -> None:
    async def main(rest: Rest) -> None:
        assert await rest.refused("/groups/g") == (404, "GROUP_NOT_FOUND")
        member = await rest.join(client_id="reader")
        assert (await rest.get("/groups"))["groups"] == [
            {"id": "g", "mode": "stream", "type": "consumer", "state": "Stable"}
        ]
        described = await rest.get("/groups/g")
        assert described["topics"] == ["orders"]
        (one,) = described["members"]
        assert (one["member_id"], one["client_id"]) == (member.id, "reader")
        assert places(one["assigned_partitions"]) == member.partitions
        assert one["last_heartbeat"].endswith("Z")
        response = await rest.client.request("DELETE", "/groups/g")
        assert (response.status, response.json()["code"]) == (409, "GROUP_NOT_EMPTY")
        await member.call("leave")
        assert (await rest.client.request("DELETE", "/groups/g")).status == 200
        assert (await rest.get("/groups"))["groups"] == []

    with_rest(main)
