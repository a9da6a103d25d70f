"""Keys that went to another partition and come back are read in order, or nothing is read, whatever happens to groups and nodes meanwhile."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from tests.support.keyed_groups import KEYED, fill, indexes, until_has, with_keyed_topic
from tests.support.keyed_topics import begin_shrinking, grow, scaling_of, until
from tests.support.nodes import End, World, create, simulate
from tests.support.rest_groups import Rest
from tests.support.transactional import Sender

from goqueue.core.group.commands import CommitOffsets, NewOffset
from goqueue.node.groups.shards import TopicsOfGroups
from goqueue.node.node import Node

NEVER_SEEN_COUNT = 70  # more than a gate is close by


def test_keys_that_come_back_to_another_partition_than_they_left_are_no_circle() -> None:
    """From 2 partitions to 6 and to 3: what left 0 for 3 and 1 for 4 comes to 0 and 1, so either seems to wait for the other."""

    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a", "b")
        await fill(node, 1, "c", "d")
        member = await rest.join()
        await member.poll()
        await member.commit({0: 1, 1: 1})
        await grow(node, 6)
        for index in range(2, 6):
            await fill(node, index, f"grown {index}")
        await begin_shrinking(node, 3)
        for index in range(3):
            await fill(node, index, f"shrunk {index}")
        for _ in range(20):
            await asyncio.sleep(1)
            await member.call("heartbeat")
        assert indexes(member) == [0, 1]
        await member.commit({0: 2, 1: 2})
        await until_has(member, 3, 4, 5)
        assert sorted(await member.poll()) == ["grown 3", "grown 4", "grown 5"]
        await member.commit({3: 1, 4: 1, 5: 1})
        await until_has(member, 0, 1, 2)
        assert sorted(await member.poll()) == ["grown 2", "shrunk 0", "shrunk 1", "shrunk 2"]
        await member.commit({0: 3, 1: 3, 2: 2})
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main)


def test_coordinator_that_knows_nothing_yet_gives_nothing_out_of_order() -> None:
    """That nothing is left before a gate was noted by a node that is gone."""

    async def world_main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node, partition_count=1, scaling="keyed")
            rest, sender = Rest(node, world), Sender()
            await fill(node, 0, "a")
            await sender.init(node)
            await sender.write(node, *[b"never seen"] * NEVER_SEEN_COUNT)
            await sender.end(node, is_commit=False)
            await until(
                lambda: node.topics.partition("orders", 0).high_watermark == NEVER_SEEN_COUNT + 2,
                "the marker",
            )
            member = await rest.join()
            await grow(node, 2)
            await fill(node, 1, "then")
            assert await member.poll() == ["a"]
            await member.commit({0: 1})
            await until_has(member, 0, 1)
            await begin_shrinking(node, 1)
            await fill(node, 0, "last")
            await until_has(member, 1)
            await until(lambda: scaling_of(node).stage == "draining", "the holds are released")
            await member.call("leave")

        async def second(node: Node) -> None:
            member, seen = await Rest(node, world).join(), list[str]()
            for _ in range(30):
                seen += await member.poll()
                await member.commit(
                    {index: NEVER_SEEN_COUNT + 3 if index == 0 else 1 for index in indexes(member)}
                )
                await asyncio.sleep(0.5)
            assert seen == ["then", "last"]

        await world.live(first, end=End.KILL)
        await world.live(second)

    simulate(world_main, config=KEYED)


def test_offsets_of_a_partition_that_is_no_more_are_not_those_of_the_next_one_of_its_number() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a")
        offsets = NewOffset("orders", 0, 1), NewOffset("orders", 1, 2)
        with patch.object(TopicsOfGroups, "partition_count", lambda self, name: 2):
            # As if a partition 1 had been there, and its offset could not be forgotten when it went.
            found = await node.groups.commit(CommitOffsets("g", offsets, "", -1))
        assert [one.error for one in found.partitions] == [None, None]
        await grow(node, 2)
        await fill(node, 1, "b", "c", "d")
        member = await rest.join()
        await until_has(member, 0, 1)
        assert await member.poll() == ["b", "c", "d"]

    with_keyed_topic(main, partition_count=1)
