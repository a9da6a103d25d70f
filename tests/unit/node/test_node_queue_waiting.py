"""Many who wait for one queue: each message wakes one of them, and none of them is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.nodes import create, publish, simulate

from goqueue.model.acks import Acks
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.polling import Poll, Polling, Taken
from goqueue.node.queue.requests import Delivered
from goqueue.node.requests import NewMessage

WAIT_MS = 20_000


def ask(node: Node, member: str, *, limit: int = 1, wait_ms: int = WAIT_MS) -> asyncio.Task[list[Delivered]]:
    places = [("orders", one.partition) for one in node.topics.partitions("orders")]
    return asyncio.create_task(node.queue.poll(Poll("g", member, places, limit, wait_ms)))


def values(delivered: list[Delivered]) -> list[bytes | None]:
    return [one.record.value for one in delivered]


@contextmanager
def takes(polling: Polling) -> Iterator[list[str]]:
    """Which members have looked for records."""
    seen: list[str] = []
    take = polling.take

    async def counted(ledger: OwnedLedger, poll: Poll, room: int) -> Taken | None:
        seen.append(poll.member_id)
        return await take(ledger, poll, room)

    polling.take = counted  # type: ignore[method-assign]
    yield seen
    polling.take = take  # type: ignore[method-assign]


def test_a_message_wakes_the_one_who_has_waited_longest() -> None:
    async def main(node: Node) -> None:
        await create(node)
        waiting = []
        for index in range(200):
            waiting.append(ask(node, f"m{index}"))
            await asyncio.sleep(0.05)
        with takes(node.queue.polling) as seen:
            await publish(node, b"a")
            assert values(await waiting[0]) == [b"a"]
            await asyncio.sleep(1)
        assert seen == ["m0"]
        assert not any(one.done() for one in waiting[1:])
        assert [values(one) for one in await asyncio.gather(*waiting[1:])] == [[]] * 199

    simulate(lambda world: world.live(main))


def test_who_takes_some_of_the_messages_passes_the_word_on() -> None:
    async def main(node: Node) -> None:
        await create(node)
        waiting = [ask(node, f"m{index}") for index in range(20)]
        await asyncio.sleep(0.5)
        await publish(node, *(b"%d" % index for index in range(12)))
        done, _ = await asyncio.wait(waiting, timeout=2)
        assert len(done) == 12
        assert sorted(one.result()[0].record.value or b"" for one in done) == sorted(
            b"%d" % index for index in range(12)
        )

    simulate(lambda world: world.live(main))


def test_who_goes_away_when_it_is_woken_leaves_the_message_to_the_next() -> None:
    async def main(node: Node) -> None:
        await create(node)
        first, second = ask(node, "first"), ask(node, "second")
        await asyncio.sleep(0.5)
        await publish(node, b"a")
        first.cancel()
        await asyncio.wait([first])
        started = asyncio.get_running_loop().time()
        found = values(await second)
        assert asyncio.get_running_loop().time() - started < 2
        assert found == [b"a"]

    simulate(lambda world: world.live(main))


def test_what_comes_back_later_finds_the_next_though_the_first_in_line_has_gone() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        (got,) = await ask(node, "m")
        first, second = ask(node, "first", wait_ms=2_000), ask(node, "second")
        await asyncio.sleep(0.5)
        await node.queue.nack([got.receipt], delay_ms=5_000)
        started = asyncio.get_running_loop().time()
        assert await first == []
        assert values(await second) == [b"a"]
        assert 4.9 <= asyncio.get_running_loop().time() - started < 5.5

    simulate(lambda world: world.live(main))


def test_a_lease_that_ends_wakes_one_who_waits() -> None:
    async def main(node: Node) -> None:
        await create(node, visibility_ms="3000", retry_backoff_ms="0")
        await publish(node, b"a")
        await ask(node, "m")
        waiting = [ask(node, f"m{index}") for index in range(3)]
        await asyncio.sleep(0.5)
        done, _ = await asyncio.wait(waiting, timeout=4, return_when=asyncio.FIRST_COMPLETED)
        assert [values(one.result()) for one in done] == [[b"a"]]

    simulate(lambda world: world.live(main))


def test_a_group_that_is_sent_back_gives_work_to_all_who_wait() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c")
        await node.queue.ack([one.receipt for one in await ask(node, "m", limit=3)])
        waiting = [ask(node, f"m{index}") for index in range(3)]
        await asyncio.sleep(0.5)
        await node.queue.seek("g", "orders", 0, 0)
        found = [values(one) for one in await asyncio.wait_for(asyncio.gather(*waiting), 2)]
        assert sorted(found) == [[b"a"], [b"b"], [b"c"]]

    simulate(lambda world: world.live(main))


def test_one_who_waits_for_two_partitions_does_not_lose_the_word_of_one() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        waiting = [ask(node, f"m{index}") for index in range(4)]
        await asyncio.sleep(0.5)
        await asyncio.gather(publish(node, b"a", partition=0), publish(node, b"b", partition=1))
        done, left = await asyncio.wait(waiting, timeout=2)
        assert sorted(one.result()[0].record.value or b"" for one in done) == [b"a", b"b"]
        assert len(left) == 2

    simulate(lambda world: world.live(main))


def test_who_waits_gets_nothing_new_until_what_was_given_before_the_order_of_keys_is_finished() -> None:
    async def main(node: Node) -> None:
        await create(node)
        messages = [NewMessage(NewRecord(key, key), 0) for key in (b"k", b"k", b"j")]
        await node.publisher.publish("orders", messages, acks=Acks.ALL)
        (got,) = await ask(node, "m")
        await node.topics.alter("orders", {"ordering": "key"})
        waiting = ask(node, "other")
        await asyncio.sleep(1)
        assert not waiting.done()
        await node.queue.ack([got.receipt])
        assert values(await asyncio.wait_for(waiting, 1)) == [b"k"]

    simulate(lambda world: world.live(main))
