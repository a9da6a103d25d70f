"""Settings edited from what they are, changes that are only checked, and settings at the edge of their range."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import End, World, create, publish, read_values, simulate

from goqueue.model.errors import (
    InvalidName,
    InvalidPartitions,
    InvalidRequest,
    InvalidSetting,
    NotReady,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.setting_changes import SettingAction, SettingOp, apply_incremental
from goqueue.model.settings import TopicSettings
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.topics import Edit


def steps(*ops: SettingOp) -> Edit:
    return lambda overrides: apply_incremental(overrides, ops, TopicSettings())


APPEND_COMPACT = steps(SettingOp("cleanup.policy", SettingAction.APPEND, "compact"))
SUBTRACT_DELETE = steps(SettingOp("cleanup.policy", SettingAction.SUBTRACT, "delete"))


@pytest.mark.parametrize("end", list(End))
def test_an_edit_is_in_force_at_once_and_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, retention_ms="5000", segment_ms="6000")
            edited = await node.topics.edit(
                "orders",
                steps(
                    SettingOp("retention.ms", SettingAction.DELETE),
                    SettingOp("cleanup.policy", SettingAction.APPEND, "compact"),
                ),
            )
            assert edited.overrides == {"segment.ms": "6000", "cleanup.policy": "compact,delete"}
            assert edited.settings["cleanup.policy"] == "compact,delete"

        async def after(node: Node) -> None:
            overrides = node.topics.get("orders").overrides
            assert overrides == {"segment.ms": "6000", "cleanup.policy": "compact,delete"}

        await world.live(life, end=end)
        await world.live(after)

    simulate(main)


def test_an_edit_can_put_one_set_of_overrides_in_the_place_of_another() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, retention_ms="5000", segment_ms="6000")
            edited = await node.topics.edit(
                "orders", lambda _: {"segment.ms": "7000", "partitioner": "crc32"}
            )
            assert edited.overrides == {"segment.ms": "7000", "partitioner": "crc32"}
            assert (await node.topics.edit("orders", lambda _: {})).overrides == {}

        await world.live(life)

    simulate(main)


def test_edits_at_the_same_time_each_begin_with_what_the_other_left() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await asyncio.gather(
                node.topics.edit("orders", APPEND_COMPACT),
                node.topics.edit("orders", SUBTRACT_DELETE),
                node.topics.alter("orders", {"retention.ms": "5000"}),
            )
            overrides = node.topics.get("orders").overrides
            assert overrides == {"cleanup.policy": "compact", "retention.ms": "5000"}

        await world.live(life)

    simulate(main)


def test_a_wrong_edit_changes_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, retention_ms="5000")
            for edit, error in (
                (SUBTRACT_DELETE, InvalidSetting),
                (lambda _: {"no.such": "1"}, InvalidSetting),
                (lambda _: {"segment.ms": "0"}, InvalidSetting),
                (steps(SettingOp("segment.ms", SettingAction.SET)), InvalidRequest),
            ):
                with pytest.raises(error):
                    node.topics.check_edit("orders", edit)
                with pytest.raises(error):
                    await node.topics.edit("orders", edit)
            for name in ("nowhere", "__cluster_metadata"):
                with pytest.raises(TopicNotFound):
                    await node.topics.edit(name, APPEND_COMPACT)
            assert node.topics.get("orders").overrides == {"retention.ms": "5000"}

        await world.live(life)

    simulate(main)


def test_a_creation_is_checked_without_a_trace() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, "there")
            would_be = node.topics.check_create(
                "orders", partition_count=None, overrides={"retention.ms": "0060"}
            )
            for name, count, overrides, error in (
                ("there", 1, {}, TopicExists),
                ("a/b", 1, {}, InvalidName),
                ("__mine", 1, {}, InvalidName),
                ("orders", 0, {}, InvalidPartitions),
                ("orders", 1, {"no.such": "1"}, InvalidSetting),
                ("orders", 1, {"preallocate": "true"}, InvalidSetting),
            ):
                with pytest.raises(error):
                    node.topics.check_create(name, partition_count=count, overrides=overrides)
            assert [facts.name for facts in node.topics.list()] == ["there"]
            created = await node.topics.create(
                "orders", partition_count=None, overrides={"retention.ms": "0060"}
            )
            assert (would_be.partition_count, would_be.overrides, would_be.settings) == (
                created.partition_count,
                created.overrides,
                created.settings,
            )

        await world.live(life)
        assert {path.split("/")[1] for path in world.files("logs")} <= {
            "orders",
            "there",
            "__cluster_metadata",
        }

    simulate(main)


def test_an_alteration_is_checked_without_a_trace() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, retention_ms="5000")
            node.topics.check_alter("orders", {"retention.ms": "6000", "segment.ms": None})
            node.topics.check_edit("orders", APPEND_COMPACT)
            with pytest.raises(InvalidSetting):
                node.topics.check_alter("orders", {"retention.ms": "soon"})
            with pytest.raises(TopicNotFound):
                node.topics.check_alter("nowhere", {})
            assert node.topics.get("orders").overrides == {"retention.ms": "5000"}

        await world.live(life)

    simulate(main)


def test_a_node_that_drains_checks_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await node.drain()
            for check in (
                lambda: node.topics.check_create("x", partition_count=1, overrides={}),
                lambda: node.topics.check_alter("orders", {}),
                lambda: node.topics.check_edit("orders", APPEND_COMPACT),
                lambda: node.topics.check_grow("orders", 2),
            ):
                with pytest.raises(NotReady):
                    check()

        await world.live(life)

    simulate(main)


def test_topics_have_ids_that_are_never_given_twice() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, "a")
            await create(node, "b")
            first = node.topics.get("b").id
            await node.topics.delete("b")
            await create(node, "b")
            ids[:] = [node.topics.get("a").id, first, node.topics.get("b").id]
            assert len(set(ids)) == 3

        async def after(node: Node) -> None:
            assert [node.topics.get(name).id for name in ("a", "b")] == [ids[0], ids[2]]

        ids: list[int] = []
        await world.live(life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("setting", ["retention_ms", "retention_bytes"])
def test_retention_of_nothing_deletes_whatever_is_sealed(setting: str) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await node.topics.create(
                "orders",
                partition_count=1,
                overrides={setting.replace("_", "."): "0", "segment.bytes": "1024"},
            )
            for at in range(5):
                await publish(node, b"%d" % at * 700)
            await asyncio.sleep(5)
            assert len(await read_values(node)) <= 1
            assert node.topics.partition("orders", 0).latest == 5

        await world.live(life)

    config = NodeConfig(log=LogConfig(cleanup_interval_ms=1_000))
    simulate(main, config=config)
