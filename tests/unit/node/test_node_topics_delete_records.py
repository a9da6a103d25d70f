"""Records deleted up to an offset: gone for every reader, in every segment, and durably before the answer."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.logs import copy_of
from tests.support.nodes import (
    Died,
    End,
    World,
    create,
    offsets,
    publish,
    read_all,
    read_values,
    simulate,
)

from goqueue.log.recovery import open_log
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    PartitionOffline,
    TopicNotFound,
)
from goqueue.model.settings import TopicSettings
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.producer_state import ProducerState
from goqueue.node.requests import ReadQuery
from goqueue.sim.disk import Operation

COUNT = 12


def value(at: int) -> bytes:
    return b"%02d" % at * 150


async def fill(node: Node, **settings: str) -> None:
    """Twelve records in batches of two, about two batches a segment."""
    await create(node, "orders", 1, segment_bytes="1500", **settings)
    for at in range(0, COUNT, 2):
        await publish(node, value(at), value(at + 1))
        await asyncio.sleep(1)  # so that each batch has a timestamp of its own


async def prove_start(node: Node, start: int) -> None:
    """Whoever asks, and in whatever way, sees the log begin at `start`."""
    assert node.topics.partition("orders", 0).earliest == start
    records = await read_all(node)
    assert [record.offset for record in records] == list(range(start, COUNT))
    assert [record.value for record in records] == [value(at) for at in range(start, COUNT)]
    by_time = await node.reader.read("orders", 0, ReadQuery(timestamp_ms=0))
    assert [record.offset for record in by_time.records] == list(range(start, COUNT))
    if start:
        with pytest.raises(OffsetOutOfRange):
            await node.reader.read("orders", 0, ReadQuery(offset=start - 1))


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("start", range(COUNT + 1))
def test_records_before_any_offset_are_gone_at_once_and_after_every_kind_of_stop(
    start: int, end: End
) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            assert await node.topics.delete_records("orders", 0, start) == start
            await prove_start(node, start)

        async def after(node: Node) -> None:
            await prove_start(node, start)
            assert node.topics.partition("orders", 0).damage == []
            assert offsets(await publish(node, b"next")) == [COUNT]

        async def finally_(node: Node) -> None:
            assert (await read_values(node))[-1] == b"next"
            assert node.topics.partition("orders", 0).earliest == start

        await world.live(life, end=end)
        await world.live(after, end=end)
        await world.live(finally_)

    simulate(main)


def test_whole_segments_are_removed_from_the_disk() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            before = node.topics.partition("orders", 0).size_bytes
            await node.topics.delete_records("orders", 0, COUNT - 1)
            assert node.topics.partition("orders", 0).size_bytes < before / 2
            assert len(world.seen("logs/orders/0", ".log")) == 1

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_minus_one_means_everything(policy: str) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, cleanup_policy=policy)
            assert await node.topics.delete_records("orders", 0, -1) == COUNT
            await prove_start(node, COUNT)
            assert offsets(await publish(node, b"next")) == [COUNT]

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"next"]

        await world.live(life, end=End.POWER_CUT)
        await world.live(after)

    simulate(main)


def test_an_empty_log_has_nothing_to_delete() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for before in (-1, 0):
                assert await node.topics.delete_records("orders", 0, before) == 0
            with pytest.raises(OffsetOutOfRange):
                await node.topics.delete_records("orders", 0, 1)

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == []

        await world.live(after)

    simulate(main)


def test_an_offset_before_the_start_changes_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            await node.topics.delete_records("orders", 0, 5)
            for before in (0, 4, 5):
                assert await node.topics.delete_records("orders", 0, before) == 5
            await prove_start(node, 5)

        await world.live(life)

    simulate(main)


def test_what_cannot_be_deleted_is_refused_and_changes_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            await create(node, "table", cleanup_policy="compact")
            for before in (COUNT + 1, -2, 2**62):
                with pytest.raises(OffsetOutOfRange):
                    await node.topics.delete_records("orders", 0, before)
            with pytest.raises(PartitionNotFound):
                await node.topics.delete_records("orders", 1, 0)
            for name in ("nowhere", "__cluster_metadata"):
                with pytest.raises(TopicNotFound):
                    await node.topics.delete_records(name, 0, 0)
            with pytest.raises(InvalidRequest, match="is compacted only"):
                await node.topics.delete_records("table", 0, -1)
            await prove_start(node, 0)

        await world.live(life)

    simulate(main)


def test_a_partition_that_has_stopped_keeps_its_start() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            world.device.fail_next("sync")
            await publish(node, b"lost")
            world.device.calm()
            with pytest.raises(PartitionOffline):
                await node.topics.delete_records("orders", 0, 5)
            assert node.topics.partition("orders", 0).earliest == 0

        await world.live(life, may_fail=True)

    simulate(main)


def test_a_reader_in_the_middle_of_the_log_is_told_where_it_starts_now() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            page = await node.reader.read("orders", 0, ReadQuery(limit=3))
            await node.topics.delete_records("orders", 0, 9)
            with pytest.raises(OffsetOutOfRange) as caught:
                await node.reader.read("orders", 0, ReadQuery(offset=page.next_offset))
            assert caught.value.details["earliest"] == 9

        await world.live(life)

    simulate(main)


def test_the_epoch_of_what_is_left_is_known_after_a_restart() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)

        async def second(node: Node) -> None:
            await publish(node, b"next")
            await node.topics.delete_records("orders", 0, COUNT)

        await world.live(life)
        await world.live(second, end=End.POWER_CUT)
        log, report = open_log(copy_of(world.device)[1], "logs/orders/0", TopicSettings(), ProducerState())
        assert log.epochs.entries() == [(1, COUNT)]
        assert report.damage == []

    simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_records_are_deleted_leaves_the_old_start_or_the_new(seed: int) -> None:
    starts = set()
    for operation in range(1, 60):

        async def main(world: World, operation: int = operation) -> bool:
            async def deletion(node: Node) -> None:
                world.device.crash_after(operation)
                await node.topics.delete_records("orders", 0, 7)
                acknowledged.append(True)

            async def after(node: Node) -> int:
                start = node.topics.partition("orders", 0).earliest
                await prove_start(node, start)
                assert node.topics.partition("orders", 0).damage == []
                return start

            acknowledged: list[bool] = []
            is_cut = False
            await world.live(fill)
            try:
                await world.live(deletion, end=End.POWER_CUT)
            except Died:
                is_cut = True
            world.device.calm()
            start = await world.live(after)
            assert start == 7 or not acknowledged
            starts.add(start)
            return is_cut

        if not simulate(main, seed=seed):
            break
    else:
        pytest.fail("more operations than were tried")
    assert starts == {0, 7}


@pytest.mark.parametrize("operation", ["append", "rename", "sync_dir", "remove", "open"])
def test_a_deletion_that_failed_can_be_asked_for_again(operation: Operation) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            world.device.fail_next(operation)
            try:
                await node.topics.delete_records("orders", 0, 7)
            except PartitionOffline:
                return  # a failed sync stops a partition
            except GoQueueError:
                world.device.calm()
                assert await node.topics.delete_records("orders", 0, 7) == 7
            world.device.calm()
            done.append(True)

        done: list[bool] = []
        await world.live(life, end=End.POWER_CUT, may_fail=True)

        async def after(node: Node) -> None:
            await prove_start(node, 7 if done else node.topics.partition("orders", 0).earliest)

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("seed", range(6))
def test_deletions_while_retention_and_compaction_run_harm_neither(seed: int) -> None:
    """Compaction plans to rewrite segments that a deletion would take away meanwhile."""
    config = NodeConfig(log=LogConfig(sync_timeout_ms=10_000, cleanup_interval_ms=3))

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(
                node,
                segment_bytes="1024",
                cleanup_policy="compact,delete",
                min_cleanable_dirty_ratio="0",
            )

            async def deleter() -> None:
                while not is_done:
                    await asyncio.sleep(0.004)
                    end = node.topics.partition("orders", 0).latest
                    wanted = max(0, end - 6)
                    assert await node.topics.delete_records("orders", 0, wanted) >= wanted

            is_done: list[bool] = []
            deleting = asyncio.ensure_future(deleter())
            for at in range(120):
                await publish(node, b"%d" % at * 60, key=b"%d" % (at % 5))
            is_done.append(True)
            await deleting
            start = node.topics.partition("orders", 0).earliest
            assert start > 50
            assert all(record.offset >= start for record in await read_all(node))

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            facts = node.topics.partition("orders", 0)
            assert facts.damage == []
            assert facts.latest == 120
            assert (await read_values(node))[-1] == b"119" * 60

        await world.live(after)

    simulate(main, seed=seed, config=config)


def test_a_deletion_and_the_end_of_its_topic_do_not_wait_for_each_other() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            deleted, gone = await asyncio.gather(
                node.topics.delete_records("orders", 0, 5),
                node.topics.delete("orders"),
                return_exceptions=True,
            )
            assert deleted == 5 or isinstance(deleted, GoQueueError)
            assert gone is None
            with pytest.raises(TopicNotFound):
                await node.topics.delete_records("orders", 0, 5)

        await world.live(life)
        assert world.files("logs/orders") == []

    simulate(main)
