"""The fetch use case: whole batches of several partitions, long polls, and clients that know another leader."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.delays import delayed, send_batch
from tests.support.nodes import End, World, create, publish, simulate

from goqueue.log.batch import decode_batch, read_header
from goqueue.model.codes import Code
from goqueue.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from goqueue.model.record import StoredRecord
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.fetch import Fetched, FetchLimits, Wanted, check_leader_epoch
from goqueue.node.node import Node
from goqueue.node.positions import EARLIEST, LATEST, MAX_TIMESTAMP, Position
from goqueue.node.requests import Isolation

AT_ONCE = FetchLimits(wait_ms=0, bytes_min=1, bytes_max=1_000_000)


def want(partition: int = 0, offset: int = 0, *, bytes_max: int = 100_000, epoch: int = -1) -> Wanted:
    return Wanted("orders", partition, offset, bytes_max, epoch)


async def fetch(node: Node, *wanted: Wanted, limits: FetchLimits = AT_ONCE) -> list[Fetched]:
    return await node.fetcher.fetch(wanted, limits, Isolation.READ_UNCOMMITTED)


def spans(found: Fetched) -> list[tuple[int, int]]:
    headers = [read_header(chunk) for chunk in found.chunks]
    return [(header.base_offset, header.end_offset) for header in headers]


def shown(found: Fetched) -> list[StoredRecord]:
    """What a client gives to its application: records of control batches are not for it."""
    headers = [(chunk, read_header(chunk)) for chunk in found.chunks]
    return [
        record for chunk, header in headers if not header.is_control for record in decode_batch(chunk, header)
    ]


def test_batches_come_whole_from_the_one_that_holds_the_offset() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b")
        await publish(node, b"c")
        (found,) = await fetch(node, want(offset=1))
        assert spans(found) == [(0, 2), (2, 3)]
        assert (found.high_watermark, found.last_stable_offset, found.log_start) == (3, 3, 0)
        (at_end,) = await fetch(node, want(offset=3))
        assert at_end.chunks == []
        assert at_end.error is None

    simulate(lambda world: world.live(main))


def test_each_partition_has_its_own_error_and_the_others_are_served() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        await publish(node, b"a", partition=1)
        beyond, unknown, good = await fetch(node, want(offset=5), want(partition=7), want(partition=1))
        assert beyond.error is not None
        assert beyond.error.code is Code.OFFSET_OUT_OF_RANGE
        assert beyond.high_watermark == 0
        assert unknown.error is not None
        assert unknown.error.code is Code.PARTITION_NOT_FOUND
        assert spans(good) == [(0, 1)]

    simulate(lambda world: world.live(main))


def test_the_first_batch_is_given_however_small_the_limits_are() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        for partition in (0, 1):
            await publish(node, b"x" * 500, partition=partition)
            await publish(node, b"y" * 500, partition=partition)
        limits = FetchLimits(wait_ms=0, bytes_min=1, bytes_max=10)
        first, second = await fetch(node, want(0, bytes_max=10), want(1, bytes_max=10), limits=limits)
        assert spans(first) == [(0, 1)]
        assert spans(second) == []
        roomy, _ = await fetch(node, want(0, bytes_max=700), want(1), limits=AT_ONCE)
        assert spans(roomy) == [(0, 1)]

    simulate(lambda world: world.live(main))


def test_a_fetch_passes_over_segments_that_compaction_emptied() -> None:
    """A stock client takes answers without a record for a message that is too large for it."""

    async def main(node: Node) -> None:
        await create(node, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0")
        for at in range(40):
            await publish(node, b"%d" % at * 400, key=b"key")
        await asyncio.sleep(10)
        (found,) = await fetch(node, want(offset=0))
        headers = [read_header(chunk) for chunk in found.chunks]
        assert any(header.record_count for header in headers)
        assert headers[0].base_offset > 30

    config = NodeConfig(log=LogConfig(cleanup_interval_ms=1_000))
    simulate(lambda world: world.live(main, config=config))


def test_a_reader_of_nothing_but_emptied_batches_gets_to_the_end() -> None:
    async def main(node: Node) -> None:
        await create(
            node,
            cleanup_policy="compact",
            segment_bytes="1024",
            min_cleanable_dirty_ratio="0",
            delete_retention_ms="0",
        )
        await publish(node, b"x" * 600, key=b"key")
        await publish(node, None, key=b"key")
        for at in range(8):
            await publish(node, b"%d" % at * 600, key=b"other")
            await asyncio.sleep(3)
        offset = 0
        records = 0
        while offset < 10:
            (found,) = await fetch(node, want(offset=offset))
            headers = [read_header(chunk) for chunk in found.chunks]
            records += sum(header.record_count for header in headers)
            assert headers[-1].end_offset > offset
            offset = headers[-1].end_offset
        assert records < 5

    config = NodeConfig(log=LogConfig(cleanup_interval_ms=1_000))
    simulate(lambda world: world.live(main, config=config))


def test_batches_of_which_all_records_are_delayed_are_one_gap_behind_which_a_reader_goes_on() -> None:
    """librdkafka takes an answer of batches without records for a message that is too large for it."""

    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        limits = FetchLimits(wait_ms=30_000, bytes_min=1, bytes_max=1_000_000)
        waiting = asyncio.create_task(fetch(node, want(offset=1), limits=limits))
        await asyncio.sleep(1)
        await send_batch(node, [delayed(b"x", 3_600), delayed(b"y", 3_600)])
        (found,) = await waiting
        assert spans(found) == [(1, 3)]
        assert [record.value for record in shown(found)] == []
        for _ in range(20):
            await send_batch(node, [delayed(b"x", 3_600)])
        for isolation in Isolation:
            (run,) = await node.fetcher.fetch([want(offset=1)], AT_ONCE, isolation)
            assert spans(run) == [(1, 23)]
            assert all(read_header(chunk).record_count for chunk in run.chunks)
        await publish(node, b"b")
        (behind,) = await fetch(node, want(offset=1, bytes_max=10))
        assert spans(behind) == [(23, 24)]
        (before,) = await fetch(node, want(offset=0))
        assert [record.value for record in shown(before)] == [b"a", b"b"]

    simulate(lambda world: world.live(main))


def test_a_fetch_waits_for_data_of_any_of_its_partitions() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        loop = asyncio.get_running_loop()
        limits = FetchLimits(wait_ms=30_000, bytes_min=1, bytes_max=1_000_000)
        started = loop.time()
        waiting = asyncio.create_task(fetch(node, want(0), want(1), limits=limits))
        await asyncio.sleep(2)
        assert not waiting.done()
        await publish(node, b"a", partition=1)
        first, second = await waiting
        assert (spans(first), spans(second)) == ([], [(0, 1)])
        assert loop.time() - started < 5

    simulate(lambda world: world.live(main))


def test_a_fetch_waits_until_there_is_as_much_as_it_asks_for_or_its_time_is_up() -> None:
    async def main(node: Node) -> None:
        await create(node)
        loop = asyncio.get_running_loop()
        limits = FetchLimits(wait_ms=5_000, bytes_min=1_000, bytes_max=1_000_000)
        waiting = asyncio.create_task(fetch(node, want(), limits=limits))
        await asyncio.sleep(1)
        await publish(node, b"x" * 100)
        await asyncio.sleep(1)
        assert not waiting.done()
        await publish(node, b"x" * 900)
        (found,) = await waiting
        assert spans(found) == [(0, 1), (1, 2)]
        started = loop.time()
        (late,) = await fetch(node, want(offset=1), limits=FetchLimits(3_000, 10_000, 1_000_000))
        assert spans(late) == [(1, 2)]  # less than was asked for, when the time is up
        assert 2.9 < loop.time() - started < 4

    simulate(lambda world: world.live(main))


def test_a_draining_node_lets_waiting_fetches_go() -> None:
    async def main(node: Node) -> None:
        await create(node)
        waiting = asyncio.create_task(fetch(node, want(), limits=FetchLimits(30_000, 1, 1_000)))
        await asyncio.sleep(1)
        await node.drain()
        async with asyncio.timeout(1):
            (found,) = await waiting
        assert found.chunks == []

    simulate(lambda world: world.live(main))


def test_the_leader_epoch_that_clients_are_told_is_the_one_that_the_next_write_begins() -> None:
    """Also while it is being begun: a client that hears a higher one could never read again."""

    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            partition = node._table.get("orders").partition(0)
            heard = {partition.leader_epoch}
            writing = asyncio.create_task(publish(node, b"a"))
            while not writing.done():
                heard.add(partition.leader_epoch)
                await asyncio.sleep(0.0001)  # with 0 virtual time would stand still
            assert heard == {partition.leader_epoch} == {0}

        async def second(node: Node) -> None:
            partition = node._table.get("orders").partition(0)
            assert partition.leader_epoch == 1  # a new start, a new leader
            with pytest.raises(FencedLeaderEpoch):
                check_leader_epoch(partition, 0)
            with pytest.raises(UnknownLeaderEpoch):
                check_leader_epoch(partition, 2)
            (found,) = await fetch(node, want(epoch=1))
            assert spans(found) == [(0, 1)]
            assert node.positions.epoch_end("orders", 0, 0) == (0, 1)
            await publish(node, b"b")
            assert partition.leader_epoch == 1
            assert node.positions.epoch_end("orders", 0, 0) == (0, 1)
            assert node.positions.epoch_end("orders", 0, 1) == (1, 2)

        await world.live(first, end=End.KILL)
        await world.live(second)

    simulate(main)


def test_positions_by_name_and_by_time() -> None:
    async def main(node: Node) -> None:
        await create(node)

        async def find(instant: int) -> Position:
            return await node.positions.find("orders", 0, instant, isolation=Isolation.READ_UNCOMMITTED)

        assert await find(MAX_TIMESTAMP) == (-1, -1, -1)
        await publish(node, b"a")
        await asyncio.sleep(10)
        await publish(node, b"b")
        assert (await find(EARLIEST)).offset == 0
        assert (await find(LATEST)).offset == 2
        newest = await find(MAX_TIMESTAMP)
        assert newest.offset == 1
        assert await find(newest.timestamp_ms) == newest
        assert (await find(newest.timestamp_ms - 1)).offset == 1
        assert (await find(0)).offset == 0
        assert await find(newest.timestamp_ms + 1) == (-1, -1, -1)

    simulate(lambda world: world.live(main))
