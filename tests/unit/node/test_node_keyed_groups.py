"""Groups of a node that read a keyed topic while its partitions change: gates open by themselves, and shrinking comes to its
end when everybody has read what goes."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.keyed_groups import KEYED, fill, indexes, until_has, with_keyed_topic
from tests.support.keyed_topics import Classic, begin_shrinking, grow, scaling_of, until
from tests.support.nodes import End, World, create, publish, simulate
from tests.support.rest_groups import Member, Rest
from tests.support.transactional import Sender

from goqueue.core.group.commands import CommitOffsets, FetchOffsets, NewOffset
from goqueue.model.errors import InvalidPartitions
from goqueue.model.record import Producer
from goqueue.node.node import Node


def test_stream_member_gets_a_new_partition_when_it_has_read_the_old_one() -> None:
    async def main(rest: Rest) -> None:
        await fill(rest.node, 0, "a", "b")
        await fill(rest.node, 1, "c")
        member = await rest.join()
        assert sorted(await member.poll()) == ["a", "b", "c"]
        await grow(rest.node, 4)
        await fill(rest.node, 2, "d")
        await fill(rest.node, 3, "e")
        for _ in range(5):
            assert await member.poll(timeout="2s") == []
            assert indexes(member) == [0, 1]
        await member.commit({0: 1, 1: 1})
        await until_has(member, 0, 1, 3)
        assert await member.poll() == ["e"]
        await member.commit({0: 2})
        await until_has(member, 0, 1, 2, 3)
        assert await member.poll() == ["d"]

    with_keyed_topic(main)


def test_marker_behind_the_last_record_does_not_keep_a_gate_shut() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a")
        sender = Sender()
        await sender.init(node)
        await sender.write(node, b"never seen")
        await sender.end(node, is_commit=False)
        await until(lambda: node.topics.partition("orders", 0).high_watermark == 3, "the marker is there")
        member = await rest.join()
        await grow(node, 2)
        await fill(node, 1, "b")
        assert await member.poll() == ["a"]
        await member.commit({0: 1})
        assert scaling_of(node).gates[0].until == 3
        await until_has(member, 0, 1)
        assert await member.poll() == ["b"]

    with_keyed_topic(main, partition_count=1)


def test_partition_that_nothing_is_left_in_holds_up_nobody() -> None:
    async def main(rest: Rest) -> None:
        await fill(rest.node, 0, "a", "b")
        await rest.node.topics.delete_records("orders", 0, 2)
        await grow(rest.node, 2)
        member = await rest.join()
        await until_has(member, 0, 1)

    with_keyed_topic(main, partition_count=1)


def test_group_that_commits_nothing_gets_the_partition_when_it_has_waited() -> None:
    async def main(rest: Rest) -> None:
        await fill(rest.node, 0, "a")
        await grow(rest.node, 2)
        member = await rest.join()
        began = asyncio.get_running_loop().time()
        await until_has(member, 0, 1)
        assert asyncio.get_running_loop().time() - began >= KEYED.groups.gate_wait_ms / 1_000

    with_keyed_topic(main, partition_count=1)


def test_group_that_commits_nothing_waits_for_each_partition_that_it_is_given() -> None:
    """Else it would get the one behind it before it could read anything of it."""

    async def main(rest: Rest) -> None:
        await fill(rest.node, 0, "a")
        await grow(rest.node, 2)
        await fill(rest.node, 1, "b")
        await grow(rest.node, 4)
        member = await rest.join()
        await until_has(member, 0, 1, 2)
        began = asyncio.get_running_loop().time()
        await until_has(member, 0, 1, 2, 3)
        assert asyncio.get_running_loop().time() - began >= KEYED.groups.gate_wait_ms / 1_000 - 1

    with_keyed_topic(main, partition_count=1)


def test_group_that_is_slow_to_commit_is_waited_for() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a", "b")
        await fill(node, 1, "c")
        member = await rest.join()
        await member.poll()
        await member.commit({0: 1})
        await grow(node, 4)
        for _ in range(4 * KEYED.groups.gate_wait_ms // 1_000):
            await asyncio.sleep(1)
            await member.call("heartbeat")
        assert indexes(member) == [0, 1]

    with_keyed_topic(main)


def test_offsets_of_what_has_grown_begin_at_the_first_record_that_is_left() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a")
        await node.groups.commit(CommitOffsets("g", (NewOffset("orders", 0, 1),)))
        await grow(node, 2)
        await fill(node, 1, "b", "c", "d")
        await node.topics.delete_records("orders", 1, 2)
        fetched = await node.groups.fetch(FetchOffsets("g", (("orders", (1,)),)))
        assert [one.offset for one in fetched.offsets] == [2]
        fetched = await node.groups.fetch(FetchOffsets("new", (("orders", (1,)),)))
        assert [one.offset for one in fetched.offsets] == [-1]

    with_keyed_topic(main, partition_count=1)


def test_group_that_was_stopped_before_growth_is_held_back_after_a_restart() -> None:
    async def world_main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node, partition_count=1, scaling="keyed")
            await fill(node, 0, "a", "b")
            await node.groups.commit(CommitOffsets("g", (NewOffset("orders", 0, 1),)))
            await grow(node, 2)
            await fill(node, 1, "c")

        async def second(node: Node) -> None:
            member = await Rest(node, world).join()
            assert await member.poll() == ["b"]
            assert indexes(member) == [0]
            await member.commit({0: 2})
            await until_has(member, 0, 1)
            assert await member.poll() == ["c"]

        await world.live(first, end=End.KILL)
        await world.live(second)

    simulate(world_main, config=KEYED)


# ---------------------------------------------------------------- classic groups


def test_classic_group_rebalances_once_for_each_change_of_its_gates() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 0, "a")
        await fill(node, 1, "b")
        await grow(node, 4)
        member = Classic(node, 4)
        await member.join()
        assert member.given == [0, 1]
        for _ in range(10):
            await member.beat()
            await asyncio.sleep(1)
        assert member.join_count == 1
        await member.commit(0, 1)
        await member.until_given(0, 1, 2)
        await member.commit(1, 1)
        await member.until_given(0, 1, 2, 3)
        for _ in range(10):
            await member.beat()
            await asyncio.sleep(1)
        assert member.join_count == 3

    with_keyed_topic(main)


# ---------------------------------------------------------------- shrinking


def test_shrinking_ends_when_every_group_has_read_what_goes() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        for index in range(4):
            await fill(node, index, f"{index}a")
        member, classic = await rest.join(), Classic(node, 4)
        await classic.join()
        await member.poll()
        await member.commit(dict.fromkeys(range(4), 1))
        for index in range(4):
            await classic.commit(index, 1)
        await fill(node, 2, "2b")
        await begin_shrinking(node, 2)
        assert scaling_of(node).stage == "merging"
        for _ in range(5):
            await classic.beat()
            await asyncio.sleep(0.5)
        assert scaling_of(node).stage == "merging", "the stream member still has partition 0"
        assert classic.given == [1, 2, 3]
        await until_has(member, 1, 2, 3)
        await until(lambda: scaling_of(node).stage == "draining", "the holds are released")
        assert scaling_of(node).holds == ()
        await classic.commit(2, 2)
        await classic.until_given(0, 1)  # nobody commits in what is gone, for others may get its numbers
        assert scaling_of(node).stage == "draining", "the stream group is behind"
        assert await member.poll() == ["2b"]
        await member.commit({2: 2})
        await asyncio.sleep(5)
        assert scaling_of(node).stage == "draining", "the stream member still has what goes"
        await until_has(member, 0, 1)
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")
        assert node._metadata.catalog.topic("orders").partition_count == 2
        await until(lambda: not _offsets_behind(node, 2), "offsets of what is gone are forgotten")

    with_keyed_topic(main, partition_count=4)


def _offsets_behind(node: Node, count: int) -> list[int]:
    states = [shard.state for shard in node.groups.shards.all()]
    return [
        index
        for state in states
        for group in state.offsets.groups()
        for index in range(count, 4)
        if state.offsets.committed(group, ("orders", index)) is not None
    ]


def test_group_without_members_delays_the_end_of_shrinking_and_nothing_else() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 1, "a", "b")
        await node.groups.commit(CommitOffsets("late", (NewOffset("orders", 1, 1),)))
        await begin_shrinking(node, 1)
        await until(lambda: scaling_of(node).stage == "draining", "nobody waits for a group without members")
        await asyncio.sleep(60)
        assert scaling_of(node).stage == "draining"
        await node.groups.delete("late")
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main)


def test_topic_that_nobody_reads_shrinks_at_once_if_what_is_read_may_go() -> None:
    async def main(rest: Rest) -> None:
        await fill(rest.node, 1, "a")
        await begin_shrinking(rest.node, 1)
        await until(lambda: scaling_of(rest.node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main)


def test_what_goes_can_be_read_by_new_groups_until_retention_has_taken_it() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await node.topics.alter("orders", {"retention.ms": "3600000"})
        await fill(node, 1, "a")
        await begin_shrinking(node, 1, discards_read=False)
        await until(lambda: scaling_of(node).stage == "draining", "nobody waits for anything else")
        await fill(node, 0, "b")
        await asyncio.sleep(1_800)
        assert scaling_of(node).undrained == (1,)
        member = await rest.join()
        await until_has(member, 1)
        assert await member.poll() == ["a"]
        await member.commit({1: 1})
        await until_has(member, 0)
        assert await member.poll() == ["b"]
        await member.commit({0: 1})
        assert scaling_of(node).undrained == (1,)
        await asyncio.sleep(2_400)
        await until(lambda: scaling_of(node).stage == "steady", "retention has taken the last record")

    with_keyed_topic(main)


def test_stale_producers_do_not_keep_alive_what_retention_would_take() -> None:
    """What they send is sent on, and leaves a gap that is as young as they are."""

    async def main(rest: Rest) -> None:
        node = rest.node
        await node.topics.alter("orders", {"retention.ms": "600000"})
        await fill(node, 1, "a")
        await begin_shrinking(node, 1, discards_read=False)
        await until(lambda: scaling_of(node).stage == "draining", "nobody waits for anything else")
        for sequence in range(20):
            await asyncio.sleep(60)
            if scaling_of(node).stage == "steady":
                return
            await publish(node, b"x", partition=1, producer=Producer(7, 0, sequence))
        raise AssertionError(f"it is still there after 20 minutes: {scaling_of(node)}")

    with_keyed_topic(main)


def test_what_is_read_may_be_let_go_while_the_topic_shrinks() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        await fill(node, 1, "a")
        await begin_shrinking(node, 1, discards_read=False)
        await until(lambda: scaling_of(node).stage == "draining", "nobody waits for anything else")
        with pytest.raises(InvalidPartitions, match="with discard_read and the same count"):
            await node.topics.shrink("orders", 1)
        await node.topics.shrink("orders", 1, discards_read=True)
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main)


async def left_behind(rest: Rest) -> Member:
    """A member whose group has committed the first of the two records in partition 0."""
    await fill(rest.node, 0, "a", "b")
    member = await rest.join()
    await member.poll()
    await member.commit({0: 1})
    return member


def test_group_behind_an_older_growth_reads_on_before_it_loses_what_stays() -> None:
    async def main(rest: Rest) -> None:
        node, member = rest.node, await left_behind(rest)
        await grow(node, 2)
        await fill(node, 1, "c")
        await begin_shrinking(node, 1)
        await asyncio.sleep(10)
        await member.call("heartbeat")
        assert indexes(member) == [0]
        assert scaling_of(node).stage == "merging"
        await member.commit({0: 2})
        await until_has(member, 1)
        await until(lambda: scaling_of(node).stage == "draining", "the holds are released")
        assert await member.poll() == ["c"]
        await member.commit({1: 1})
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main, partition_count=1)


def test_group_behind_an_older_growth_is_waited_for_when_its_members_have_gone() -> None:
    """Else the next ones would read what stays to its end, and what goes after that."""

    async def main(rest: Rest) -> None:
        node, member = rest.node, await left_behind(rest)
        await grow(node, 2)
        await fill(node, 1, "c")
        await begin_shrinking(node, 1)
        await member.call("leave")
        await fill(node, 0, "d")
        await asyncio.sleep(60)
        assert scaling_of(node).stage == "merging"
        member = await rest.join()
        assert await member.poll() == ["b"]
        await member.commit({0: 2})
        await until_has(member, 1)
        assert await member.poll() == ["c"]
        await member.commit({1: 1})
        await until_has(member, 0)
        assert await member.poll() == ["d"]
        await member.commit({0: 3})
        await until(lambda: scaling_of(node).stage == "steady", "the topic has shrunk")

    with_keyed_topic(main, partition_count=1)


def test_topic_does_not_shrink_before_an_absent_group_has_come_to_the_last_growth() -> None:
    async def main(rest: Rest) -> None:
        node = rest.node
        shrinking = node.keyed_groups.shrinking
        member = await left_behind(rest)
        await shrinking.check("orders", 1)
        await grow(node, 4)
        await shrinking.check("orders", 2)  # it has members, which may read on
        await member.call("leave")
        with pytest.raises(
            InvalidPartitions, match=r"without members read it last .*let them read on, or delete them"
        ):
            await shrinking.check("orders", 2)
        member = await rest.join()
        await member.poll()
        await member.commit({0: 2})
        await member.call("leave")
        await shrinking.check("orders", 2)

    with_keyed_topic(main)
