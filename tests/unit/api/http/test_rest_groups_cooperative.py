"""The two phases of a rebalance in the open: first a member gives up, then another gets; and what it costs."""

from __future__ import annotations

from tests.support.asgi import Json
from tests.support.nodes import counted
from tests.support.rest_groups import Member, Rest, places, with_rest


async def state_of(rest: Rest, member: Member) -> Json:
    members = (await rest.get("/groups/g/cooperative"))["members"]
    (found,) = [one for one in members if one["member_id"] == member.id]
    return found


def test_a_member_is_told_what_to_give_up_keeps_it_until_it_says_so_and_then_another_gets_it() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join_cooperatively()
        assert first.last["state"] == "complete"
        second = await rest.join_cooperatively()
        assert second.last["state"] == "pending_assign"
        moving = places(second.last["partitions_pending"])
        assert len(moving) == 1

        told = await first.call("heartbeat/cooperative")
        assert told["state"] == "pending_revoke"
        assert places(told["partitions_to_revoke"]) == moving
        assert told["revocation_deadline"].endswith("Z")
        assert (await state_of(rest, first))["revocation_deadline"] == told["revocation_deadline"]
        assert (await second.call("heartbeat/cooperative"))["partitions_assigned"] == []

        told = await first.call("revoke", revoked_partitions=told["partitions_to_revoke"])
        assert told["state"] == "complete"
        assert told["revocation_deadline"] is None
        told = await second.call("heartbeat/cooperative")
        assert (told["state"], places(told["partitions_assigned"])) == ("complete", moving)
        cooperation = await rest.get("/groups/g/cooperative")
        assert not cooperation["rebalance_in_progress"]
        assert {one["state"] for one in cooperation["members"]} == {"complete"}

    with_rest(main)


def test_what_is_being_given_up_may_still_be_committed_but_is_not_read_any_more() -> None:
    async def main(rest: Rest) -> None:
        for index in range(3):
            await rest.publish("a", partition=index)
        first = await rest.join_cooperatively()
        await first.poll()
        await rest.join_cooperatively()
        told = await first.call("heartbeat/cooperative")
        ((_, moving),) = places(told["partitions_to_revoke"])
        for index in range(3):
            await rest.publish("b", partition=index)
        got = (await first.polled())["messages"]
        assert sorted(one["partition"] for one in got) == sorted({0, 1, 2} - {moving})
        await first.commit({moving: 1})
        answer = await first.call("revoke", revoked_partitions=told["partitions_to_revoke"])
        assert answer["state"] == "complete"
        assert await first.commit_refused({moving: 2}) == (403, "PARTITION_NOT_ASSIGNED")

    with_rest(main)


def test_partitions_may_be_given_up_one_by_one() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join_cooperatively()
        second = await rest.join_cooperatively()
        told = await first.call("heartbeat/cooperative")
        one, other = told["partitions_to_revoke"]
        assert (await first.call("revoke", revoked_partitions=[one]))["state"] == "pending_revoke"
        assert (await second.call("heartbeat/cooperative"))["partitions_assigned"] == []
        assert (await first.call("revoke", revoked_partitions=[other]))["state"] == "complete"
        assert len((await second.call("heartbeat/cooperative"))["partitions_assigned"]) == 2

    with_rest(main, partition_count=4)


def test_a_partition_that_stays_cannot_be_given_up_and_giving_up_twice_does_no_harm() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join_cooperatively()
        kept = first.last["assigned_partitions"]
        assert await first.refused("revoke", revoked_partitions=kept) == (400, "INVALID_REQUEST")
        await rest.join_cooperatively()
        told = await first.call("heartbeat/cooperative")
        for _ in range(2):
            again = await first.call("revoke", revoked_partitions=told["partitions_to_revoke"])
            assert again["state"] == "complete"

    with_rest(main)


def test_a_plain_heartbeat_gives_up_at_once_and_says_what() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join_cooperatively()
        await rest.join_cooperatively()
        told = await first.call("heartbeat")
        assert len(told["partitions_to_revoke"]) == 1
        assert told["state"] == "complete"
        assert len(first.partitions) == 2

    with_rest(main)


def test_who_does_not_give_up_in_time_loses_everything() -> None:
    async def main(rest: Rest) -> None:
        stubborn = await rest.join_cooperatively(rebalance_timeout="5s")
        other = await rest.join(session_timeout="2m")
        assert (await stubborn.call("heartbeat/cooperative"))["state"] == "pending_revoke"
        for _ in range(4):
            await rest.sleep(2)
            response = await rest.client.post("/groups/g/heartbeat/cooperative", {"member_id": stubborn.id})
        assert (response.status, response.json()["code"]) == (404, "UNKNOWN_MEMBER")
        await other.call("heartbeat")
        await other.call("heartbeat")
        assert len(other.partitions) == 3
        stats = await rest.get("/groups/g/rebalance/stats")
        assert stats["revocation_timeouts"] == 1
        assert stats["by_reason"] == {"member_joined": 2, "revocation_timeout": 1}
        assert counted(rest.node, "consumer_revocation_timeouts_total") == 1

    with_rest(main)


def test_leaving_shows_what_it_releases() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join_cooperatively()
        answer = await member.call("leave/cooperative")
        assert places(answer["released_partitions"]) == [("orders", n) for n in range(3)]
        assert (await rest.get("/groups/g"))["members"] == []

    with_rest(main)


def test_the_assignment_shows_what_each_has_and_shall_have() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join_cooperatively()
        second = await rest.join_cooperatively()
        shown = {one["member_id"]: one for one in (await rest.get("/groups/g/assignment"))["members"]}
        assert len(shown[first.id]["assigned_partitions"]) == 3
        assert len(shown[first.id]["target_partitions"]) == 2
        assert shown[second.id]["assigned_partitions"] == []
        assert len(shown[second.id]["target_partitions"]) == 1

    with_rest(main)


def test_rebalances_are_counted_timed_and_summed_over_groups() -> None:
    async def main(rest: Rest) -> None:
        first = await rest.join()
        second = await rest.join()
        assert (await rest.get("/groups/g/rebalance/stats"))["in_progress"]
        await rest.sleep(2)
        await first.call("heartbeat")
        await second.call("heartbeat")
        await second.call("leave")
        await first.call("heartbeat")
        stats = await rest.get("/groups/g/rebalance/stats")
        assert stats["rebalances"] == 3
        assert stats["by_reason"] == {"member_joined": 2, "member_left": 1}
        assert stats["partitions_moved"] == 2
        assert 2_000 <= stats["longest_duration_ms"] < 2_500
        assert not stats["in_progress"]
        await rest.join("other")
        total = await rest.get("/rebalance/stats")
        assert total["rebalances"] == 4
        assert total["partitions_moved"] == 2
        assert counted(rest.node, "consumer_group_rebalances_total", reason="member_joined") == 3
        assert counted(rest.node, "consumer_moved_partitions_total") == 2
        assert counted(rest.node, "consumer_rebalance_seconds_count") == 4
        assert await rest.refused("/groups/none/rebalance/stats") == (404, "GROUP_NOT_FOUND")

    with_rest(main)


def test_a_grown_topic_is_a_reason_too() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join()
        await rest.node.topics.grow("orders", 5)
        await rest.sleep(4)
        await member.call("heartbeat")
        assert len(member.partitions) == 5
        assert (await rest.get("/rebalance/stats"))["by_reason"] == {"member_joined": 1, "topics_changed": 1}

    with_rest(main)


def test_members_of_a_queue_have_nothing_to_revoke() -> None:
    async def main(rest: Rest) -> None:
        join = {"client_id": "c", "topics": ["orders"], "mode": "queue"}
        assert await rest.refused("/groups/q/join/cooperative", join) == (400, "INVALID_REQUEST")
        member = await rest.join("q", mode="queue")
        assert await member.refused("revoke", revoked_partitions=[]) == (400, "INVALID_REQUEST")

    with_rest(main)
