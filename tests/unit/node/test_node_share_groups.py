"""Share groups on a whole node: members and settings survive, who goes lets go, and a deleted group is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any  # fields of heartbeats, checked when they are made

import pytest
from msgspec import structs
from tests.support.nodes import CONFIG, End, World, create, simulate
from tests.support.share_groups import beat

from goqueue.core.group.commands import GroupSummary, GroupType
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.share_events import ShareHeartbeatReply
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GoQueueError,
    GroupNotEmpty,
    GroupNotFound,
    InvalidSetting,
    StorageError,
    UnknownMember,
)
from goqueue.node.node import Node
from goqueue.sim.disk import Operation

ENDS = pytest.mark.parametrize("end", [End.STOP, End.KILL, End.POWER_CUT])
SESSION_S = CONFIG.groups.share_session_ms / 1_000


async def send(
    node: Node, epoch: int = 0, member_id: str = "m", group: str = "g", **fields: Any
) -> ShareHeartbeatReply:
    return await node.groups.share_heartbeat(beat(epoch, member_id, group, **fields))


async def members(node: Node, group: str = "g") -> list[str]:
    return [member.member_id for member in (await node.groups.describe_share(group)).members]


class Heard:
    """Who left, and which groups are gone."""

    def __init__(self, node: Node) -> None:
        self.left: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.error: GoQueueError | None = None
        node.groups.when_member_left(self._note_left)
        node.groups.when_group_deleted(self._note_deleted)

    async def _note_left(self, group_id: str, member_id: str) -> None:
        await asyncio.sleep(0.5)
        if self.error is not None:
            raise self.error
        self.left.append((group_id, member_id))

    async def _note_deleted(self, group_id: str) -> None:
        if self.error is not None:
            raise self.error
        self.deleted.append(group_id)


@ENDS
def test_members_and_settings_survive_and_have_a_full_session_again(end: End) -> None:
    async def before(node: Node) -> int:
        await create(node, partition_count=2)
        await node.groups.configure("g", {"share.auto.offset.reset": "earliest", "max.retries": "9"})
        reply = await send(node)
        assert reply.assignment == (("orders", (0, 1)),)
        await asyncio.sleep(SESSION_S - 1)
        return reply.member_epoch

    async def after(node: Node, epoch: int) -> None:
        assert node.groups.settings_of("g") == {"max.retries": "9", "share.auto.offset.reset": "earliest"}
        assert node.groups.share_member("g", "m", epoch) == ("orders",)
        await asyncio.sleep(SESSION_S - 1)
        assert (await send(node, epoch)).assignment is None
        await asyncio.sleep(SESSION_S + 0.1)
        assert await members(node) == []

    async def scenario(world: World) -> None:
        epoch = await world.live(before, end=end)
        await world.live(lambda node: after(node, epoch))

    simulate(scenario)


def test_members_learn_of_new_partitions_and_topics() -> None:
    async def life(node: Node) -> None:
        await create(node, partition_count=1)
        epoch = (await send(node, subscribed_topics=("orders", "later"))).member_epoch
        await node.topics.grow("orders", 2)
        reply = await send(node, epoch)
        assert reply.assignment == (("orders", (0, 1)),)
        await create(node, "later", partition_count=1)
        reply = await send(node, reply.member_epoch)
        assert reply.assignment == (("later", (0,)), ("orders", (0, 1)))
        await node.topics.delete("orders")
        assert (await send(node, reply.member_epoch)).assignment == (("later", (0,)),)

    simulate(lambda world: world.live(life))


def test_who_asks_for_a_member_is_told_at_once() -> None:
    async def life(node: Node) -> None:
        with pytest.raises(UnknownMember):
            node.groups.share_member("g", "m", None)
        epoch = (await send(node, subscribed_topics=("b", "a"))).member_epoch
        assert node.groups.share_member("g", "m", None) == ("a", "b")
        assert node.groups.share_member("g", "m", epoch) == ("a", "b")
        with pytest.raises(FencedMemberEpoch):
            node.groups.share_member("g", "m", epoch + 1)
        with pytest.raises(UnknownMember):
            node.groups.share_member("g", "n", None)

    simulate(lambda world: world.live(life))


def test_who_leaves_has_let_go_before_it_is_answered() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        await send(node)
        await send(node, -1)
        assert heard.left == [("g", "m")]
        with pytest.raises(UnknownMember):
            await send(node, -1)
        assert heard.left == [("g", "m")]

    simulate(lambda world: world.live(life))


def test_who_is_not_heard_of_any_more_lets_go() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        await send(node, member_id="m")
        await send(node, member_id="n")
        await asyncio.sleep(SESSION_S + 1)
        assert sorted(heard.left) == [("g", "m"), ("g", "n")]
        assert await members(node) == []

    simulate(lambda world: world.live(life))


def test_member_has_left_though_what_it_held_could_not_be_freed() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        heard.error = StorageError("no")
        await send(node)
        assert (await send(node, -1)).member_epoch == -1
        assert await members(node) == []

    simulate(lambda world: world.live(life))


def test_deleted_group_is_forgotten_with_its_settings() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        await send(node)
        await node.groups.configure("g", {"max.retries": "9"})
        with pytest.raises(GroupNotEmpty):
            await node.groups.delete("g")
        assert heard.deleted == []
        await send(node, -1)
        await node.groups.delete("g")
        assert (heard.deleted, node.groups.settings_of("g"), await node.groups.list()) == (["g"], {}, [])
        with pytest.raises(GroupNotFound):
            await node.groups.delete("g")

    async def scenario(world: World) -> None:
        await world.live(life, end=End.POWER_CUT)
        await world.live(gone)

    async def gone(node: Node) -> None:
        with pytest.raises(GroupNotFound):
            await node.groups.describe_share("g")

    simulate(scenario)


def test_group_stays_when_its_positions_cannot_be_forgotten() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        await send(node)
        await send(node, -1)
        heard.error = StorageError("no")
        with pytest.raises(StorageError):
            await node.groups.delete("g")
        assert await members(node) == []
        heard.error = None
        await node.groups.delete("g")
        assert heard.deleted == ["g"]

    simulate(lambda world: world.live(life))


def test_groups_of_other_kinds_are_deleted_without_a_word_to_the_queue() -> None:
    async def life(node: Node) -> None:
        heard = Heard(node)
        await node.groups.configure("settings-only", {"max.retries": "9"})
        await node.groups.delete("settings-only")
        assert (heard.deleted, node.groups.settings_of("settings-only")) == ([], {})

    simulate(lambda world: world.live(life))


def test_groups_are_described_by_their_kind_only() -> None:
    async def life(node: Node) -> None:
        await send(node)
        assert [one.group_id for one in await node.groups.list(types=["share"])] == ["g"]
        assert await node.groups.list(types=["classic", "consumer"]) == []
        (summary,) = await node.groups.list()
        assert isinstance(summary, GroupSummary)
        assert summary.group_type is GroupType.SHARE
        with pytest.raises(GroupNotFound, match="'g' is a share group, not a classic group"):
            await node.groups.describe("g")
        with pytest.raises(GroupNotFound, match="'g' is a share group, not a consumer group"):
            await node.groups.describe_consumer("g")
        with pytest.raises(GroupNotFound, match="there is no group 'h'"):
            await node.groups.describe_share("h")

    simulate(lambda world: world.live(life))


def test_bad_settings_make_no_internal_topic() -> None:
    async def life(node: Node) -> None:
        for attempt in (node.groups.configure("g", {"colour": "red"}), send(node, subscribed_topics=())):
            with pytest.raises(GoQueueError):
                await attempt
        with pytest.raises(InvalidSetting, match="unknown group setting 'colour'"):
            node.groups.check_configuration("g", {"colour": "red"})
        node.groups.check_configuration("g", {"max.retries": "9"})
        assert (node.groups.settings_of("g"), node.groups.lease_settings_of("g")) == ({}, {})

    async def scenario(world: World) -> None:
        await world.live(life)
        assert world.files("logs/__consumer_offsets-0") == []

    simulate(scenario)


def test_checking_settings_changes_nothing() -> None:
    async def life(node: Node) -> None:
        await node.groups.configure("g", {"visibility.ms": "7", "share.auto.offset.reset": "earliest"})
        node.groups.check_configuration("g", {"visibility.ms": "8"})
        node.groups.check_configuration("g", {}, is_whole=True)
        assert node.groups.settings_of("g")["visibility.ms"] == "7"
        assert node.groups.lease_settings_of("g") == {"visibility.ms": "7"}

    simulate(lambda world: world.live(life))


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_heartbeat_that_cannot_be_written_is_refused_and_the_member_tries_again(operation: Operation) -> None:
    async def scenario(world: World) -> None:
        async def life(node: Node) -> int:
            await create(node, partition_count=1)
            epoch = (await send(node)).member_epoch
            await node.topics.grow("orders", 2)
            world.device.fail_next(operation)
            with pytest.raises(CoordinatorNotAvailable):
                await send(node, epoch)
            return epoch

        async def next_life(node: Node, epoch: int) -> None:
            reply = await send(node, epoch)
            assert reply.assignment == (("orders", (0, 1)),)
            assert node.groups.share_member("g", "m", reply.member_epoch) == ("orders",)

        epoch = await world.live(life, end=End.KILL)
        await world.live(lambda node: next_life(node, epoch))

    simulate(scenario)


def test_limits_are_those_of_the_node() -> None:
    config = structs.replace(
        CONFIG, groups=GroupConfig(member_count_max=1, share_session_ms=2_000, share_heartbeat_ms=500)
    )

    async def life(node: Node) -> None:
        assert (await send(node)).heartbeat_interval_ms == 500
        with pytest.raises(GoQueueError, match="has 1 members, which is the limit"):
            await send(node, member_id="n")
        await asyncio.sleep(2.1)
        await send(node, member_id="n")

    simulate(lambda world: world.live(life), config=config)
