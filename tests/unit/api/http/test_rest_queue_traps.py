"""Traps of the specification for members of queue groups over REST that need many messages, or minutes of virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.asgi import Json
from tests.support.rest_groups import Member, Rest, with_rest
from tests.support.transactional import Sender

from goqueue.model.priority import LANE_COUNT, WEIGHTS


async def take(member: Member, **query: object) -> list[Json]:
    """Poll and ack."""
    messages: list[Json] = (await member.polled(**query))["messages"]
    if messages:
        receipts = [one["receipt_handle"] for one in messages]
        await member.rest.post("/messages/ack/batch", {"receipt_handles": receipts})
    return messages


def test_trap_2_an_uncommitted_message_comes_once_it_is_committed() -> None:
    async def main(rest: Rest) -> None:
        member = await rest.join("q", mode="queue")
        sender = Sender()
        await sender.init(rest.node)
        await rest.publish("before")
        await sender.write(rest.node, b"in doubt")
        await rest.publish("after")
        assert [one["value"] for one in await take(member)] == ["before"]
        assert await take(member, timeout="5s") == []
        await sender.commit(rest.node)
        assert [one["value"] for one in await take(member)] == ["in doubt", "after"]

    with_rest(main)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_trap_10_with_all_lanes_full_the_shares_are_the_weights(limit: int) -> None:
    async def main(rest: Rest) -> None:
        messages = [{"value": "x", "partition": 0, "priority": at % LANE_COUNT} for at in range(1_000)]
        for _ in range(2):
            await rest.post("/topics/orders/messages", {"messages": messages})
        member = await rest.join("q", mode="queue")
        counts: Counter[int] = Counter()
        while counts.total() < 500:
            got = await take(member, limit=min(limit, 500 - counts.total()))
            assert got
            counts.update(one["priority"] for one in got)
        for lane, weight in enumerate(WEIGHTS):
            assert abs(counts[lane] / 500 - weight / 100) < 0.02

    with_rest(main)


def test_trap_14_one_message_that_takes_minutes_does_not_stop_its_partition() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("slow")
        slow = await rest.join("q", mode="queue")
        (held,) = (await slow.polled(visibility="1h"))["messages"]
        quick = await rest.join("q", mode="queue")
        for step in range(1, 31):
            await rest.sleep(20)
            await slow.call("heartbeat")
            await rest.publish(f"{step}")
            assert [one["value"] for one in await take(quick)] == [f"{step}"]
            assert rest.node.queue.committed("q", "orders", 0) == 0
        done = await rest.post("/messages/ack", {"receipt_handle": held["receipt_handle"]})
        assert done["committed_offset"] == 31

    with_rest(main)


def test_trap_18_a_zombie_finishes_nothing_of_what_another_has_now() -> None:
    async def main(rest: Rest) -> None:
        await rest.publish("a")
        zombie = await rest.join("q", mode="queue")
        (old,) = (await zombie.polled(visibility="2s"))["messages"]
        successor = await rest.join("q", mode="queue")
        (new,) = (await successor.polled(timeout="20s"))["messages"]
        for action, more in (
            ("ack", {}),
            ("nack", {}),
            ("reject", {"reason": "no"}),
            ("visibility", {"timeout": 0}),
        ):
            body = {"receipt_handle": old["receipt_handle"], **more}
            assert await rest.refused(f"/messages/{action}", body) == (409, "LEASE_SUPERSEDED")
        assert rest.node.queue.committed("q", "orders", 0) == 0
        done = await rest.post("/messages/ack", {"receipt_handle": new["receipt_handle"]})
        assert done["committed_offset"] == 1

    with_rest(main)
