"""Groups on a disk that fails: nothing is answered that is not durable, and whoever waits is told to try again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.groups import join
from tests.support.nodes import Died, End, World, counted, create, publish, simulate

from goqueue.core.group.commands import (
    CommitOffsets,
    FetchOffsets,
    GroupState,
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    NewOffset,
    SyncGroup,
)
from goqueue.model.errors import CoordinatorNotAvailable, DiskFull, GoQueueError, UnknownMember
from goqueue.node.internal_topics import coordinator_partition
from goqueue.node.node import Node


async def commit(node: Node, offset: int, member: Joined | None = None) -> None:
    command = CommitOffsets(
        "g",
        (NewOffset("orders", 0, offset),),
        member.member_id if member else "",
        member.generation if member else -1,
    )
    (result,) = (await node.groups.commit(command)).partitions
    assert result.error is None


async def committed(node: Node) -> int:
    found = await node.groups.fetch(FetchOffsets("g", (("orders", (0,)),)))
    return found.offsets[0].offset


async def become_member(node: Node) -> Joined:
    joined = await node.groups.join(join())
    assigned = ((joined.member_id, b"all"),)
    await node.groups.sync(SyncGroup("g", joined.member_id, joined.generation, assignments=assigned))
    return joined


async def state(node: Node) -> GroupState:
    return (await node.groups.describe("g")).state


def test_commit_that_cannot_be_written_is_refused_and_the_group_goes_on() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            member = await become_member(node)
            await commit(node, 5, member)
            world.device.fail_next("append")
            with pytest.raises(CoordinatorNotAvailable):
                await commit(node, 6, member)
            world.device.calm()
            assert counted(node, "consumer_shard_reloads_total") == 0
            await node.groups.heartbeat(Heartbeat("g", member.member_id, member.generation))

        await world.live(life, end=End.KILL, may_fail=True)

        async def after(node: Node) -> None:
            assert await committed(node) == 5

        await world.live(after)

    simulate(main)


def test_failed_write_of_a_rebalance_sends_everybody_away_and_the_group_is_as_in_the_log() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            groups = node.groups
            first = await become_member(node)
            joining = asyncio.ensure_future(groups.join(join()))
            await asyncio.sleep(0.1)
            rejoined = await groups.join(join(first.member_id))
            second = await joining
            syncing = asyncio.ensure_future(groups.sync(SyncGroup("g", second.member_id, 2)))
            await asyncio.sleep(0.1)
            world.device.fail_next("append")
            with pytest.raises(CoordinatorNotAvailable):
                await groups.sync(SyncGroup("g", rejoined.member_id, 2))
            with pytest.raises(CoordinatorNotAvailable):
                await syncing
            world.device.calm()
            assert counted(node, "consumer_shard_reloads_total") == 1
            assert counted(node, "consumer_parked_calls") == 0
            with pytest.raises(UnknownMember):
                await groups.heartbeat(Heartbeat("g", second.member_id, 2))
            await groups.heartbeat(Heartbeat("g", first.member_id, 1))
            assert await state(node) is GroupState.STABLE

        await world.live(life, end=End.KILL, may_fail=True)

    simulate(main)


def test_sync_to_disk_that_fails_is_never_a_success() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await commit(node, 5)
            world.device.fail_next("sync")
            with pytest.raises(CoordinatorNotAvailable):
                await commit(node, 6)
            world.device.calm()
            with pytest.raises(CoordinatorNotAvailable):  # what is in memory may not be on disk
                await committed(node)
            with pytest.raises(CoordinatorNotAvailable):
                await commit(node, 7)

        await world.live(life, end=End.POWER_CUT, may_fail=True)

        async def after(node: Node) -> None:
            assert await committed(node) in (5, 6)
            await commit(node, 8)

        await world.live(after)

    simulate(main)


def test_reply_that_others_wait_for_is_an_error_if_it_does_not_become_durable() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            groups = node.groups
            first = await become_member(node)
            joining = asyncio.ensure_future(groups.join(join()))
            await asyncio.sleep(0.1)
            rejoined = await groups.join(join(first.member_id))
            second = await joining
            syncing = asyncio.ensure_future(groups.sync(SyncGroup("g", second.member_id, 2)))
            await asyncio.sleep(0.1)
            world.device.fail_next("sync")
            with pytest.raises(CoordinatorNotAvailable):
                await groups.sync(SyncGroup("g", rejoined.member_id, 2))
            with pytest.raises(CoordinatorNotAvailable):
                await syncing
            world.device.calm()

        await world.live(life, end=End.POWER_CUT, may_fail=True)

    simulate(main)


def test_deadline_that_cannot_be_written_is_met_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await become_member(node)
            await asyncio.sleep(9.9)
            world.device.fail_next("append", error=28)
            await asyncio.sleep(1)
            world.device.calm()
            await asyncio.sleep(15)  # the session began anew when the shard was read again
            assert await state(node) is GroupState.EMPTY

        await world.live(life, may_fail=True)

    simulate(main)


def test_full_disk_stops_commits_and_joins_but_no_session() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            groups = node.groups
            member = await become_member(node)
            await commit(node, 5, member)
            for _ in range(10):
                await publish(node, b"x" * 20_000)
            world.device.capacity_bytes = int(world.device.platter.used_bytes() * 100 / 92)
            await asyncio.sleep(1.1)
            for _ in range(4):
                await asyncio.sleep(8)
                await groups.heartbeat(Heartbeat("g", member.member_id, member.generation))
            with pytest.raises(DiskFull):
                await commit(node, 6, member)
            with pytest.raises(DiskFull):
                await groups.join(join())
            assert await committed(node) == 5
            left = await groups.leave(LeaveGroup("g", (Leaver(member.member_id),)))
            assert left.members[0].error is None
            await groups.delete("g")

        await world.live(life)

    simulate(main)


def test_damaged_log_costs_what_the_damaged_batch_held_and_nothing_else() -> None:
    """It is reported; the groups go on with the newest of everything else (ADR 21)."""

    async def main(world: World) -> None:
        path = f"logs/__consumer_offsets/{coordinator_partition('g', 50)}/00000000000000000000.log"

        async def life(node: Node) -> None:
            await create(node, partition_count=3)
            for partition in range(3):
                new = NewOffset("orders", partition, 7)
                await node.groups.commit(CommitOffsets("g", (new,)))

        await world.live(life)
        world.device.flip_bit(path, 8 * (len(world.device.snapshot()[path]) // 2))

        async def after(node: Node) -> None:
            assert counted(node, "storage_damage_total") >= 1
            found = await node.groups.fetch(FetchOffsets("g"))
            assert {one.partition: one.offset for one in found.offsets} == {0: 7, 2: 7}
            await commit(node, 9)
            assert await committed(node) == 9

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_power_cut_at_any_moment_keeps_what_was_answered(seed: int) -> None:
    """At every disk operation from the first group on: no offset goes back, and a member that was told its assignment is
    still a member."""
    for operation in range(1, 400, 7):

        async def main(world: World, operation: int = operation) -> bool:
            acked = -1
            member: Joined | None = None

            async def start(node: Node) -> None:
                await create(node)

            async def life(node: Node) -> None:
                nonlocal acked, member
                world.device.crash_after(operation)
                member = await become_member(node)
                for offset in range(10):
                    await commit(node, offset, member)
                    acked = offset

            await world.live(start)
            try:
                await world.live(life, end=End.KILL)
                is_cut = False
            except Died:
                is_cut = True
            world.device.calm()

            async def after(node: Node) -> None:
                found = await committed(node)
                assert acked <= found <= acked + 1
                if member is not None and acked >= 0:
                    await node.groups.heartbeat(Heartbeat("g", member.member_id, member.generation))
                    await commit(node, 100, member)
                else:
                    await become_member_anyhow(node)

            await world.live(after)
            return is_cut

        if not simulate(main, seed=seed):
            return
    pytest.fail("more operations than were tried")


async def become_member_anyhow(node: Node) -> None:
    """A member that may be in the log and will not come back is waited for until its session ends."""
    try:
        async with asyncio.timeout(120):
            await become_member(node)
    except GoQueueError as error:
        raise AssertionError("a new member is not taken in") from error
