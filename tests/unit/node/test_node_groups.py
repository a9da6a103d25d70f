"""Groups on a whole node: what was answered survives, members go on after a restart, and deadlines are met on time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from tests.support.groups import join, subscription
from tests.support.nodes import CONFIG, End, World, counted, create, simulate

from goqueue.core.group.commands import (
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    GroupState,
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    NewOffset,
    SyncGroup,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer_events import ConsumerHeartbeat
from goqueue.model.codes import Code
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GoQueueError,
    GroupNotFound,
    IllegalGeneration,
    InvalidGroupId,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from goqueue.node.node import Node
from goqueue.sim.broker import SimClock

LOGS = "logs/__consumer_offsets"
ENDS = pytest.mark.parametrize("end", [End.STOP, End.KILL, End.POWER_CUT])


async def commit(
    node: Node,
    offset: int,
    member: Joined | None = None,
    *,
    group: str = "g",
    partition: int = 0,
    **changes: Any,
) -> Code | None:
    """The error of the partition; raises where the whole commit is refused."""
    command = CommitOffsets(
        group,
        (NewOffset("orders", partition, offset, metadata=changes.get("metadata", "")),),
        member.member_id if member else "",
        member.generation if member else -1,
        changes.get("instance_id"),
    )
    (result,) = (await node.groups.commit(command)).partitions
    return result.error.code if result.error else None


async def committed(node: Node, group: str = "g") -> dict[int, int]:
    found = await node.groups.fetch(FetchOffsets(group))
    return {one.partition: one.offset for one in found.offsets}


async def become_member(node: Node, **changes: Any) -> Joined:
    """Join alone, as leader, and take everything."""
    group = changes.get("group", "g")
    joined = await node.groups.join(join(**changes))
    assigned = tuple((one.member_id, one.member_id.encode()) for one in joined.members)
    await node.groups.sync(
        SyncGroup(
            group, joined.member_id, joined.generation, changes.get("instance_id"), assignments=assigned
        )
    )
    return joined


async def heartbeat(node: Node, member: Joined, group: str = "g") -> None:
    await node.groups.heartbeat(Heartbeat(group, member.member_id, member.generation))


async def settle() -> None:
    """Let everybody come as far as they can without waiting for time."""
    await asyncio.sleep(0.1)


# What survives.


@ENDS
def test_committed_offsets_survive_the_end_of_the_node(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            for group in ("g", "h", "another group"):
                assert await commit(node, 5, group=group) is None
                assert await commit(node, 7, group=group, partition=1) is None
            assert await commit(node, 6) is None

        async def after(node: Node) -> None:
            assert await committed(node) == {0: 6, 1: 7}
            assert await committed(node, "another group") == {0: 5, 1: 7}
            assert await committed(node, "nobody") == {}
            assert await commit(node, 8) is None

        await world.live(life, end=end)
        await world.live(after, end=end)

        async def last(node: Node) -> None:
            assert await committed(node) == {0: 8, 1: 7}

        await world.live(last)

    simulate(main)


@ENDS
def test_member_of_a_stable_group_goes_on_after_a_restart_without_a_rebalance(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> Joined:
            await create(node)
            member = await become_member(node)
            await commit(node, 5, member)
            return member

        member = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await heartbeat(node, member)
            assert await commit(node, 6, member) is None
            facts = await node.groups.describe("g")
            assert (facts.state, facts.generation) == (GroupState.STABLE, member.generation)
            assert [one.assignment for one in facts.members] == [member.member_id.encode()]
            for _ in range(10):
                await asyncio.sleep(9)
                await heartbeat(node, member)

        await world.live(after, end=end)

    simulate(main)


@ENDS
def test_zombie_is_refused_before_and_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> tuple[Joined, Joined, Joined]:
            await create(node)
            old = await become_member(node)
            await node.groups.leave(LeaveGroup("g", (Leaver(old.member_id),)))
            static = await become_member(node, instance_id="i")
            current = await node.groups.join(join(instance_id="i"))
            assert await commit(node, 5, current, instance_id="i") is None
            await prove(node, old, static, current)
            return old, static, current

        async def prove(node: Node, old: Joined, static: Joined, current: Joined) -> None:
            with pytest.raises(UnknownMember):
                await commit(node, 1, old)
            with pytest.raises(UnknownMember):
                await heartbeat(node, old)
            with pytest.raises(FencedInstance):
                await commit(node, 1, static, instance_id="i")
            stale = Joined(current.member_id, 1, "", "", "", ())
            with pytest.raises(IllegalGeneration):
                await commit(node, 1, stale, instance_id="i")
            assert await committed(node) == {0: 5}

        members = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await prove(node, *members)

        await world.live(after)

    simulate(main)


@ENDS
def test_offsets_in_a_transaction_wait_for_its_end_also_across_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await commit(node, 1)
            for partition, producer_id in ((0, 1), (1, 2)):
                new = NewOffset("orders", partition, 10)
                results = await node.groups.commit_in_transaction(
                    CommitInTransaction("g", producer_id, 0, (new,))
                )
                assert results.partitions[0].error is None
            assert await committed(node) == {0: 1}

        async def after(node: Node) -> None:
            stable = await node.groups.fetch(FetchOffsets("g", require_stable=True))
            assert [one.error and one.error.code for one in stable.offsets] == [Code.UNSTABLE_OFFSET] * 2
            await node.groups.complete_transaction("g", 1, 0, is_commit=True)
            await node.groups.complete_transaction("g", 2, 1, is_commit=False)
            assert await committed(node) == {0: 10}

        async def last(node: Node) -> None:
            await node.groups.complete_transaction("g", 2, 0, is_commit=True)
            assert await committed(node) == {0: 10}

        await world.live(life, end=end)
        await world.live(after, end=end)
        await world.live(last)

    simulate(main)


# Groups that are not there.


def test_reading_makes_no_groups_and_no_topic() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            groups = node.groups
            assert await committed(node) == {}
            found = await groups.fetch(FetchOffsets("g", (("orders", (0,)),)))
            assert [one.offset for one in found.offsets] == [-1]
            assert await groups.list() == []
            for refused in (groups.describe("g"), groups.describe_consumer("g"), groups.delete("g")):
                with pytest.raises(GroupNotFound):
                    await refused
            for unknown in (
                groups.heartbeat(Heartbeat("g", "m", 1)),
                groups.sync(SyncGroup("g", "m", 1)),
                groups.leave(LeaveGroup("g", (Leaver("m"),))),
                groups.consumer_heartbeat(ConsumerHeartbeat("g", "m", 1, "")),
            ):
                with pytest.raises(UnknownMember):
                    await unknown
            with pytest.raises(GroupNotFound):
                await groups.delete_offsets(DeleteOffsets("g", (("orders", 0),)))
            await groups.complete_transaction("g", 1, 0, is_commit=True)
            await groups.topic_deleted("orders")

        await world.live(life)
        assert world.files(LOGS) == []

    simulate(main)


def test_what_is_refused_makes_no_topic_either() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            with pytest.raises(InvalidGroupId):
                await node.groups.join(join(group=""))

        await world.live(life)
        assert world.files(LOGS) == []

    simulate(main)


# Rebalances and deadlines.


def test_second_member_waits_for_the_first_and_both_get_their_assignment() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            groups = node.groups
            first = await become_member(node)
            joining = asyncio.ensure_future(groups.join(join()))
            await settle()
            assert not joining.done()
            assert counted(node, "consumer_parked_calls") == 1
            with pytest.raises(RebalanceInProgress):
                await heartbeat(node, first)
            first = await groups.join(join(first.member_id))
            second = await joining
            assert [first.generation, second.generation] == [2, 2]
            assert len(first.members) == 2
            syncing = asyncio.ensure_future(groups.sync(SyncGroup("g", second.member_id, 2)))
            await settle()
            assert not syncing.done()
            assigned = ((first.member_id, b"a"), (second.member_id, b"b"))
            own = await groups.sync(SyncGroup("g", first.member_id, 2, assignments=assigned))
            assert (own.assignment, (await syncing).assignment) == (b"a", b"b")
            assert counted(node, "consumer_parked_calls") == 0
            assert counted(node, "consumer_rebalances_total") == 2

        await world.live(life)

    simulate(main)


def test_member_that_must_know_its_id_gets_one_that_nobody_else_has() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            ids = []
            for _ in range(2):
                with pytest.raises(MemberIdRequired) as caught:
                    await node.groups.join(join(must_know_id=True))
                ids.append(str(caught.value.details["member_id"]))
            assert ids[0] != ids[1]
            assert (await node.groups.join(join(ids[0]))).member_id == ids[0]

        await world.live(life)

    simulate(main)


def test_session_ends_exactly_when_it_is_over_and_releases_who_waits() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await become_member(node, session_timeout_ms=10_000)
            await asyncio.sleep(4)
            started = world.loop.time()
            second = await node.groups.join(join())
            assert second.generation == 2
            assert 5.9 < world.loop.time() - started < 6.1

        await world.live(life)

    simulate(main)


def test_timer_wakes_for_an_earlier_deadline() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await become_member(node, group="slow", session_timeout_ms=1_000_000)
            await settle()
            await become_member(node, group="quick", session_timeout_ms=1_000)
            await asyncio.sleep(1.1)
            states = {one.group_id: one.state for one in await node.groups.list()}
            assert states == {"slow": GroupState.STABLE, "quick": GroupState.EMPTY}

        await world.live(life)

    simulate(main)


def test_the_deadline_of_a_join_that_waits_is_kept() -> None:
    """Nobody else calls: the timer must know of it before the join waits."""

    async def main(node: Node) -> None:
        await create(node)
        async with asyncio.timeout(2):
            joined = await node.groups.join(join())
        assert joined.generation == 1

    config = structs.replace(CONFIG, groups=GroupConfig(initial_rebalance_delay_ms=500))
    simulate(lambda world: world.live(main), config=config)


def test_idle_groups_cost_no_wakeups() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await become_member(node, session_timeout_ms=1_800_000)
            await settle()
            ticks = 0
            for shard in node.groups.shards.all():
                state_tick = shard.state.tick

                def count(now_ms: int, state_tick: Any = state_tick) -> Any:  # a stand-in for the method
                    nonlocal ticks
                    ticks += 1
                    return state_tick(now_ms)

                shard.state.tick = count  # type: ignore[method-assign]  # watched
            await asyncio.sleep(600)
            assert ticks == 0

        await world.live(life)

    simulate(main)


def test_client_that_goes_away_while_it_waits_is_not_waited_for_beyond_its_session() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            groups = node.groups
            first = await become_member(node, session_timeout_ms=60_000)
            joining = asyncio.ensure_future(groups.join(join()))
            await settle()
            joining.cancel()
            await asyncio.wait([joining])
            assert counted(node, "consumer_parked_calls") == 0
            first = await groups.join(join(first.member_id, session_timeout_ms=60_000))
            assert len(first.members) == 2
            await groups.sync(SyncGroup("g", first.member_id, first.generation))
            await asyncio.sleep(10.5)
            with pytest.raises(RebalanceInProgress):
                await heartbeat(node, first)
            assert len((await groups.join(join(first.member_id))).members) == 1

        await world.live(life)

    simulate(main)


def test_call_that_releases_others_may_itself_be_cancelled() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            groups = node.groups
            first = await become_member(node)
            joining = asyncio.ensure_future(groups.join(join()))
            await settle()
            rejoining = asyncio.ensure_future(groups.join(join(first.member_id)))
            await asyncio.sleep(0)
            rejoining.cancel()
            assert (await joining).generation == 2

        await world.live(life)

    simulate(main)


def test_members_that_wait_are_sent_away_when_the_node_stops() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> asyncio.Future[Joined]:
            await become_member(node)
            joining = asyncio.ensure_future(node.groups.join(join()))
            await settle()
            await node.drain()
            with pytest.raises(CoordinatorNotAvailable):
                await joining
            return joining

        await world.live(life)

    simulate(main)


class SetClock(SimClock):
    """A clock that somebody sets."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("by_ms", [-86_400_000, 86_400_000])
def test_setting_the_clock_ends_no_session_and_makes_none_endless(by_ms: int) -> None:
    async def main(world: World) -> None:
        clock = world.clock = SetClock(world.loop)

        async def life(node: Node) -> None:
            member = await become_member(node)
            await asyncio.sleep(5)
            clock.ahead_ms = by_ms
            await asyncio.sleep(3)
            await heartbeat(node, member)
            await asyncio.sleep(9)
            assert (await node.groups.describe("g")).state is GroupState.STABLE
            await asyncio.sleep(1.1)
            assert (await node.groups.describe("g")).state is GroupState.EMPTY

        await world.live(life)

    simulate(main)


# Consumer groups, lists, deletion.


def beat(epoch: int, member_id: str = "m", group: str = "c") -> ConsumerHeartbeat:
    is_join = epoch == 0
    return ConsumerHeartbeat(
        group,
        member_id,
        epoch,
        "",
        rebalance_timeout_ms=60_000 if is_join else -1,
        subscribed_topics=("orders",) if is_join else None,
        owned=() if is_join else None,
    )


@ENDS
def test_consumer_group_lives_across_a_restart_and_loses_who_is_not_heard_of(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            reply = await node.groups.consumer_heartbeat(beat(0))
            assert (reply.member_epoch, reply.assignment) == (1, (("orders", (0, 1)),))

        async def after(node: Node) -> None:
            reply = await node.groups.consumer_heartbeat(beat(1))
            assert reply.member_epoch == 1
            await asyncio.sleep(node.config.groups.consumer_session_ms / 1_000 + 0.1)
            assert (await node.groups.describe_consumer("c")).members == ()
            with pytest.raises(GoQueueError, match="consumer group"):
                await node.groups.describe("c")

        await world.live(life, end=end)
        await world.live(after)

    simulate(main)


def test_member_of_a_consumer_group_without_an_id_gets_one() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            replies = [await node.groups.consumer_heartbeat(beat(0, "")) for _ in range(2)]
            assert replies[0].member_id
            assert replies[0].member_id != replies[1].member_id

        await world.live(life)

    simulate(main)


def test_groups_of_all_shards_are_listed_by_name() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            names = [f"group-{at}" for at in range(20)]
            for name in names:
                await commit(node, 1, group=name)
            await become_member(node, group="members")
            await node.groups.consumer_heartbeat(beat(0))
            assert [one.group_id for one in await node.groups.list()] == sorted([*names, "members", "c"])
            found = await node.groups.list(states=["Stable"], types=["classic"])
            assert [one.group_id for one in found] == ["members"]

        await world.live(life)

    simulate(main)


@ENDS
def test_deleted_group_and_deleted_offsets_stay_deleted(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            for group in ("g", "h"):
                for partition in (0, 1):
                    await commit(node, 5, group=group, partition=partition)
            await node.groups.delete("g")
            results = await node.groups.delete_offsets(DeleteOffsets("h", (("orders", 0),)))
            assert results.partitions[0].error is None

        async def after(node: Node) -> None:
            with pytest.raises(GroupNotFound):
                await node.groups.describe("g")
            assert await committed(node) == {}
            assert await committed(node, "h") == {1: 5}

        await world.live(life, end=end)
        await world.live(after)

    simulate(main)


@ENDS
def test_offsets_go_with_their_topic(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for group in ("g", "h"):
                await commit(node, 5, group=group)
            await node.topics.delete("orders")
            await create(node)
            assert await committed(node) == await committed(node, "h") == {}

        async def after(node: Node) -> None:
            assert await committed(node) == await committed(node, "h") == {}
            assert await node.groups.list() == []

        await world.live(life, end=end)
        await world.live(after)

    simulate(main)


def test_start_removes_offsets_of_topics_that_a_crash_left_behind() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await commit(node, 5)

            async def nothing(topic: str) -> None:
                """As if the node had died before it could tell anybody."""

            node._local.when_deleted(nothing)
            await node.topics.delete("orders")

        async def after(node: Node) -> None:
            await create(node)
            assert await committed(node) == {}

        await world.live(life, end=End.KILL)
        await world.live(after)

    simulate(main)


def test_members_subscribed_to_a_topic_keep_its_offsets() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            member = await become_member(node, protocols=(("range", subscription("orders")),))
            await commit(node, 5, member)
            results = await node.groups.delete_offsets(DeleteOffsets("g", (("orders", 0),)))
            assert results.partitions[0].error is not None
            assert results.partitions[0].error.code is Code.GROUP_SUBSCRIBED_TO_TOPIC

        await world.live(life)

    simulate(main)


def test_log_that_was_compacted_gives_the_same_groups() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> Joined:
            await create(node)
            member = await become_member(node, session_timeout_ms=1_800_000)
            for offset in range(1_500):
                await commit(node, offset, member, metadata="x" * 4_000)
            before = log_bytes()
            await asyncio.sleep(120)  # housekeeping
            assert log_bytes() < before / 2
            return member

        def log_bytes() -> int:
            assert world.alive is not None
            disk = world.alive.disk
            return sum(
                file.size
                for folder in disk.list(LOGS)
                for file in disk.list(f"{LOGS}/{folder.name}")
                if file.name.endswith(".log")
            )

        member = await world.live(life, end=End.KILL)

        async def after(node: Node) -> None:
            assert await committed(node) == {0: 1_499}
            await heartbeat(node, member)
            assert await commit(node, 1_500, member) is None

        await world.live(after)

    simulate(main)


def test_commits_are_counted() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await commit(node, 1)
            await commit(node, 2)
            assert counted(node, "consumer_committed_offsets_total") == 2

        await world.live(life)

    simulate(main)
