"""Reading beside transactions: who sees what, who waits for what, and that no restart changes it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import End, World, create, messages, nothing, publish, simulate

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, encode_batch
from goqueue.model.acks import Acks
from goqueue.model.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from goqueue.model.record import NewRecord, Producer
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.partition import Partition, Stored
from goqueue.node.requests import Isolation, ReadQuery, ReadResult

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
NOW_MS = 1_700_000_000_000


def partition_of(node: Node) -> Partition:
    return node._table.get("orders").partition(0)


async def write(
    node: Node,
    id: int,
    *values: bytes,
    epoch: int = 0,
    sequence: int | None = None,
    key: bytes | None = None,
    plain: bool = False,
) -> Stored:
    """As the producer's next batch, on disk before this returns."""
    partition = partition_of(node)
    await partition.lead()
    known = {facts.producer_id: facts for facts in partition.producers()}.get(id)
    if sequence is None:
        sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
    header, batch = encode_batch(
        [NewRecord(key, value) for value in values],
        NOW_MS,
        producer=Producer(id, epoch, sequence),
        attributes=0 if plain else ATTRIBUTE_TRANSACTIONAL,
    )
    stored = partition.append(batch, header, now_ms=NOW_MS)
    await partition.commit.wait(stored.end)
    return stored


async def end(node: Node, id: int, *, is_commit: bool, epoch: int = 0) -> Stored:
    partition = partition_of(node)
    await partition.lead()
    stored = partition.append_marker(id, epoch, is_commit=is_commit, coordinator_epoch=2, now_ms=NOW_MS)
    await partition.commit.wait(stored.end)
    return stored


async def read(
    node: Node, isolation: Isolation = COMMITTED, *, offset: int = 0, wait_ms: int = 0, limit: int = 100
) -> ReadResult:
    query = ReadQuery(offset=offset, limit=limit, wait_ms=wait_ms, isolation=isolation)
    return await node.reader.read("orders", 0, query)


async def values(node: Node, isolation: Isolation = COMMITTED, *, offset: int = 0) -> list[bytes | None]:
    return [record.value for record in (await read(node, isolation, offset=offset)).records]


async def fill(node: Node) -> None:
    """Producer 1 aborts, 2 commits, 3 stays open, and plain records are in between."""
    await create(node, segment_bytes="1024")
    await write(node, 1, b"a0", b"a1")  # 0, 1
    await write(node, 2, b"c2")
    await publish(node, b"p3")
    await write(node, 3, b"o4")
    await write(node, 1, b"a5")
    await end(node, 1, is_commit=False)  # 6
    await end(node, 2, is_commit=True)  # 7
    await publish(node, b"p8")


def test_committed_readers_stop_at_the_oldest_open_transaction_and_never_see_aborted_records() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            page = await read(node)
            assert [record.value for record in page.records] == [b"c2", b"p3"]
            assert (page.next_offset, page.last_stable_offset, page.high_watermark) == (4, 4, 9)
            assert await values(node, UNCOMMITTED) == [b"a0", b"a1", b"c2", b"p3", b"o4", b"a5", b"p8"]
            await end(node, 3, is_commit=True)
            page = await read(node)
            assert [record.value for record in page.records] == [b"c2", b"p3", b"o4", b"p8"]
            assert (page.next_offset, page.last_stable_offset, page.high_watermark) == (10, 10, 10)

        await world.live(life)

    simulate(main)


def test_reader_gets_the_same_from_every_offset_and_in_pages_of_every_size() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            await end(node, 3, is_commit=False)
            expected = [(2, b"c2"), (3, b"p3"), (8, b"p8")]
            for start in range(10):
                for limit in (1, 2, 5):
                    found: list[tuple[int, bytes | None]] = []
                    offset = start
                    while offset < 10:
                        page = await read(node, offset=offset, limit=limit)
                        assert len(page.records) <= limit
                        assert page.next_offset > offset
                        found += [(record.offset, record.value) for record in page.records]
                        offset = page.next_offset
                    assert found == [one for one in expected if one[0] >= start]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("stop", list(End))
def test_open_transaction_survives_a_restart_as_open_and_aborted_records_stay_hidden(stop: End) -> None:
    async def main(world: World) -> None:
        await world.live(fill, end=stop)

        async def later(node: Node) -> None:
            partition = partition_of(node)
            assert [facts.transaction_start for facts in partition.open_transactions()] == [4]
            assert partition.has_open_transaction(3, 0)
            assert not partition.has_open_transaction(3, 1)
            assert not partition.has_open_transaction(1, 0)
            assert partition.last_stable_offset == 4
            assert partition.aborted(0, 9) == [(1, 0)]
            assert await values(node) == [b"c2", b"p3"]
            await write(node, 3, b"o9")
            await end(node, 3, is_commit=False)
            assert await values(node) == [b"c2", b"p3", b"p8"]

        await world.live(later, end=stop)

        async def at_last(node: Node) -> None:
            assert partition_of(node).open_transactions() == []
            assert sorted(partition_of(node).aborted(0, 11)) == [(1, 0), (3, 4)]
            assert await values(node) == [b"c2", b"p3", b"p8"]

        await world.live(at_last)

    simulate(main)


def test_facts_of_a_partitions_producers_are_told() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            facts = {one.producer_id: one for one in partition_of(node).producers()}
            assert facts[1] == (1, 0, 2, NOW_MS, -1, 2)
            assert facts[3] == (3, 0, 0, NOW_MS, 4, -1)
            await end(node, 9, is_commit=True, epoch=5)
            assert partition_of(node).producers()[-1] == (9, 5, -1, NOW_MS, -1, 2)

        await world.live(life)

    simulate(main)


# ---------------------------------------------------------------- waiting


def test_committed_reader_waits_through_writes_until_the_marker_moves_the_last_stable_offset() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await write(node, 1, b"open")
            committed = asyncio.ensure_future(read(node, wait_ms=60_000))
            uncommitted = asyncio.ensure_future(read(node, UNCOMMITTED, offset=1, wait_ms=60_000))
            await asyncio.sleep(1)
            await publish(node, b"plain")
            await asyncio.sleep(1)
            assert [record.value for record in (await uncommitted).records] == [b"plain"]
            assert not committed.done()
            started = world.loop.time()
            await end(node, 1, is_commit=True)
            page = await committed
            assert [record.value for record in page.records] == [b"open", b"plain"]
            assert world.loop.time() - started < 1

        await world.live(life)

    simulate(main)


def test_committed_reader_goes_on_waiting_when_all_that_came_was_aborted() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await write(node, 1, b"aborted")
            waiting = asyncio.ensure_future(read(node, wait_ms=60_000))
            await asyncio.sleep(1)
            await end(node, 1, is_commit=False)
            await asyncio.sleep(1)
            assert not waiting.done()
            await publish(node, b"plain")
            page = await waiting
            assert [record.value for record in page.records] == [b"plain"]

        await world.live(life)

    simulate(main)


def test_committed_reader_that_waits_in_vain_gets_an_empty_page() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await write(node, 1, b"open")
            started = world.loop.time()
            page = await read(node, wait_ms=5_000)
            assert (page.records, page.next_offset, page.high_watermark) == ([], 0, 1)
            assert 5 <= world.loop.time() - started < 6

        await world.live(life)

    simulate(main)


# ---------------------------------------------------------------- who may write


def test_producer_with_a_new_epoch_is_no_duplicate_and_a_stale_one_is_refused() -> None:
    """Traps 23 and 24, with transactions."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            first = await write(node, 1, b"old", sequence=0)
            again = await write(node, 1, b"old", sequence=0)
            assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
            await end(node, 1, is_commit=False, epoch=1)
            with pytest.raises(ProducerFenced):
                await write(node, 1, b"old", epoch=0, sequence=1)
            with pytest.raises(ProducerFenced):
                await end(node, 1, is_commit=True, epoch=0)
            with pytest.raises(OutOfOrderSequence):
                await write(node, 1, b"new", epoch=1, sequence=1)
            fresh = await write(node, 1, b"new", epoch=1, sequence=0)
            assert not fresh.is_duplicate
            with pytest.raises(InvalidTransactionState):
                await write(node, 1, b"plain", epoch=1, plain=True)
            await end(node, 1, is_commit=True, epoch=2)
            assert await values(node) == [b"new"]

        await world.live(life, end=End.KILL)

        async def later(node: Node) -> None:
            with pytest.raises(ProducerFenced):
                await write(node, 1, b"old", epoch=1, sequence=1)
            assert await values(node) == [b"new"]

        await world.live(later)

    simulate(main)


def test_marker_that_cannot_be_written_ends_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await write(node, 1, b"v")
            world.device.fail_next("append")
            with pytest.raises(Exception, match="writing to"):
                await end(node, 1, is_commit=True)
            assert partition_of(node).last_stable_offset == 0
            assert partition_of(node).has_open_transaction(1, 0)
            await end(node, 1, is_commit=True)
            assert await values(node) == [b"v"]

        await world.live(life)

    simulate(main)


# ---------------------------------------------------------------- housekeeping


def test_compaction_leaves_an_open_transaction_alone_and_removes_an_aborted_one() -> None:
    config = NodeConfig(log=LogConfig(cleanup_interval_ms=1_000))

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(
                node, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0.01"
            )
            await write(node, 1, b"committed", key=b"k")
            await end(node, 1, is_commit=True)
            await write(node, 2, b"aborted", key=b"k")
            await end(node, 2, is_commit=False)
            for _ in range(8):
                await publish(node, b"x" * 200)
            await write(node, 3, b"open", key=b"k")
            for _ in range(8):
                await publish(node, b"x" * 200)
            await asyncio.sleep(5)
            raw = [record.value for record in (await read(node, UNCOMMITTED)).records]
            assert b"aborted" not in raw
            assert {b"committed", b"open"} <= set(raw)
            await end(node, 3, is_commit=True)
            for _ in range(8):
                await publish(node, b"x" * 200)
            await asyncio.sleep(5)
            raw = [record.value for record in (await read(node, UNCOMMITTED)).records]
            assert b"committed" not in raw
            assert b"open" in raw

        await world.live(life, config=config, end=End.POWER_CUT)
        await world.live(nothing)

    simulate(main, config=config)


def test_batches_that_are_only_acked_by_the_leader_move_the_last_stable_offset_too() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await node.publisher.publish("orders", messages(b"v"), acks=Acks.LEADER)
            assert partition_of(node).last_stable_offset == 1

        await world.live(life)

    simulate(main)
