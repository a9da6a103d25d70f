"""Reading: from where to where, waiting for data, and what a damaged or cold log does to a reader."""

from __future__ import annotations

import asyncio
from typing import TypedDict, Unpack

import pytest
from tests.support.leaderships import PlayedLeadership, followers_of, led
from tests.support.nodes import World, counted, create, in_one_life, offsets, publish, read_values, simulate

from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import OffsetNotAvailable
from goqueue.model.errors import (
    DataCorrupt,
    InvalidRequest,
    LimitExceeded,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from goqueue.model.limits import Limits
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery, ReadResult


class Bounds(TypedDict, total=False):
    offset: int
    timestamp_ms: int
    to_offset: int
    to_timestamp_ms: int
    limit: int
    wait_ms: int


async def read(node: Node, partition: int = 0, **bounds: Unpack[Bounds]) -> ReadResult:
    return await node.reader.read("orders", partition, ReadQuery(**bounds))


def found(page: ReadResult) -> list[int]:
    return [record.offset for record in page.records]


async def fill(node: Node, count: int = 20, *, size: int = 100) -> None:
    """One record in each batch, a few batches in each segment."""
    await create(node, segment_bytes="1024")
    for at in range(count):
        offsets(await publish(node, b"%03d" % at + b"x" * size, acks=Acks.LEADER))


def test_a_read_begins_and_ends_where_it_says() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            assert found(await read(node)) == list(range(20))
            assert found(await read(node, offset=7)) == list(range(7, 20))
            assert found(await read(node, offset=7, to_offset=9)) == [7, 8]
            assert found(await read(node, offset=7, to_offset=7)) == []
            assert found(await read(node, offset=7, to_offset=3)) == []
            assert found(await read(node, to_offset=100)) == list(range(20))
            page = await read(node, offset=3, limit=4)
            assert (found(page), page.next_offset, page.high_watermark) == ([3, 4, 5, 6], 7, 20)
            page = await read(node, offset=18, limit=4)
            assert (found(page), page.next_offset) == ([18, 19], 20)
            page = await read(node, offset=20)
            assert (found(page), page.next_offset) == ([], 20)
            page = await read(node, offset=2, to_offset=5)
            assert page.next_offset == 5

        await world.live(life)

    simulate(main)


def test_a_read_in_the_middle_of_a_batch_begins_there() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, *(b"%d" % at for at in range(10)))
            await publish(node, *(b"%d" % at for at in range(10, 20)))
            for start in range(20):
                for end in range(start, 21):
                    assert found(await read(node, offset=start, to_offset=end)) == list(range(start, end))
                for limit in (1, 3, 10, 11):
                    page = await read(node, offset=start, limit=limit)
                    assert found(page) == list(range(start, min(20, start + limit)))
                    assert page.next_offset == min(20, start + limit)

        await world.live(life)

    simulate(main)


def test_what_does_not_exist_is_refused() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node)
            with pytest.raises(OffsetOutOfRange) as caught:
                await read(node, offset=21)
            assert caught.value.details == {"offset": 21, "earliest": 0, "latest": 20}
            with pytest.raises(PartitionNotFound):
                await read(node, 1)
            with pytest.raises(PartitionNotFound):
                await read(node, -1)
            with pytest.raises(TopicNotFound):
                await node.reader.read("nowhere", 0, ReadQuery())
            wrong: list[Bounds] = [
                {"offset": -1},
                {"to_offset": -1},
                {"timestamp_ms": -1},
                {"to_timestamp_ms": -1},
                {"limit": 0},
                {"wait_ms": -1},
                {"wait_ms": 60_001},
                {"offset": 1, "timestamp_ms": 1},
            ]
            for bounds in wrong:
                with pytest.raises(InvalidRequest):
                    await read(node, **bounds)

        await world.live(life)

    simulate(main)


def test_a_read_by_time_begins_and_ends_with_the_first_record_that_is_not_older() -> None:
    """Trap 4, second half: on a log of many segments."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024")
            stamps = []
            for at in range(40):
                await asyncio.sleep(1)
                stamps.append(world.clock.now_ms())
                await publish(node, b"%d" % at * 100, acks=Acks.LEADER)
            for at in (0, 1, 17, 38, 39):
                assert found(await read(node, timestamp_ms=stamps[at]))[0] == at
                assert found(await read(node, timestamp_ms=stamps[at] - 500))[0] == at
                assert found(await read(node, to_timestamp_ms=stamps[at])) == list(range(at))
            assert found(await read(node, timestamp_ms=stamps[5], to_timestamp_ms=stamps[9])) == [5, 6, 7, 8]
            assert found(await read(node, timestamp_ms=0)) == list(range(40))
            page = await read(node, timestamp_ms=stamps[-1] + 1_000)
            assert (found(page), page.next_offset) == ([], 40)

        await world.live(life)

    simulate(main)


def test_an_answer_has_a_limit_of_bytes_and_reading_goes_on_behind_it() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 60, size=400)
            pages = []
            offset = 0
            while offset < 60:
                page = await read(node, offset=offset, limit=1_000)
                assert page.records
                pages.append(found(page))
                offset = page.next_offset
            assert [offset for page in pages for offset in page] == list(range(60))
            assert max(len(page) for page in pages) <= 10

        await world.live(life, config=NodeConfig(limits=Limits(read_bytes_max=4_096)))

    simulate(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_parked_read_wakes_as_soon_as_there_is_data(seed: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 3)
            waiting = [
                asyncio.ensure_future(read(node, offset=offset, wait_ms=60_000)) for offset in (3, 3, 3)
            ]
            await asyncio.sleep(5)
            assert counted(node, "broker_parked_reads") == 3
            assert node.stats()["parked_reads"] == 3
            assert not any(task.done() for task in waiting)
            before = world.loop.time()
            await publish(node, b"new", acks=Acks.LEADER)
            pages = await asyncio.gather(*waiting)
            assert world.loop.time() == before
            assert [found(page) for page in pages] == [[3]] * 3
            assert counted(node, "broker_parked_reads") == 0
            assert node.stats()["parked_reads"] == 0

        await world.live(life)

    simulate(main, seed=seed)


def test_a_parked_read_that_finds_nothing_ends_empty_at_its_deadline() -> None:
    """Trap 16."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 3)
            before = world.loop.time()
            page = await read(node, offset=3, wait_ms=20_000)
            assert world.loop.time() - before == pytest.approx(20)
            assert (found(page), page.next_offset, page.high_watermark) == ([], 3, 3)

        await world.live(life)

    simulate(main)


def test_a_read_with_data_or_without_room_does_not_wait() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 3)
            before = world.loop.time()
            assert found(await read(node, offset=2, wait_ms=20_000)) == [2]
            assert found(await read(node, offset=3, to_offset=3, wait_ms=20_000)) == []
            assert found(await read(node, offset=2, to_offset=2, wait_ms=20_000)) == []
            assert world.loop.time() == before

        await world.live(life)

    simulate(main)


def test_parked_reads_end_when_the_node_drains_and_new_ones_do_not_park() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 3)
            waiting = asyncio.ensure_future(read(node, offset=3, wait_ms=60_000))
            await asyncio.sleep(1)
            before = world.loop.time()
            await node.drain()
            assert found(await waiting) == []
            assert found(await read(node, offset=3, wait_ms=60_000)) == []
            assert found(await read(node)) == [0, 1, 2]
            assert world.loop.time() - before < 0.1

        await world.live(life)

    simulate(main)


def test_parked_reads_end_when_the_topic_is_deleted() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 3)
            waiting = asyncio.ensure_future(read(node, offset=3, wait_ms=60_000))
            await asyncio.sleep(1)
            before = world.loop.time()
            await node.topics.delete("orders")
            assert found(await waiting) == []
            assert world.loop.time() - before < 0.1
            assert node.stats()["parked_reads"] == 0

        await world.live(life)

    simulate(main)


def test_the_number_of_parked_reads_is_bounded_and_one_that_leaves_makes_room() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 1)
            waiting = [asyncio.ensure_future(read(node, offset=1, wait_ms=60_000)) for _ in range(3)]
            await asyncio.sleep(1)
            with pytest.raises(LimitExceeded):
                await read(node, offset=1, wait_ms=60_000)
            assert found(await read(node, offset=1)) == []
            waiting[0].cancel()
            await asyncio.gather(waiting[0], return_exceptions=True)
            waiting[0] = asyncio.ensure_future(read(node, offset=1, wait_ms=60_000))
            await asyncio.sleep(1)
            assert counted(node, "broker_parked_reads") == 3
            await publish(node, b"new")
            assert [found(page) for page in await asyncio.gather(*waiting)] == [[1]] * 3

        await world.live(life, config=NodeConfig(limits=Limits(parked_read_count_max=3)))

    simulate(main)


def test_a_reader_never_passes_the_high_watermark() -> None:
    """Trap 30: whatever is in the log behind it, as it will be on a leader that waits for its followers."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await publish(node, b"a", b"b", b"c")
            log = node._table.get("orders").partition(0).log  # no public way leads there yet
            log.high_watermark = 2
            page = await read(node)
            assert (found(page), page.next_offset, page.high_watermark) == ([0, 1], 2, 2)
            assert found(await read(node, offset=2, wait_ms=1_000)) == []
            assert found(await read(node, to_offset=3)) == [0, 1]
            assert found(await read(node, timestamp_ms=world.clock.now_ms() + 1)) == []
            assert found(await read(node, offset=3)) == []  # in the log: it may be committed any moment
            with pytest.raises(OffsetOutOfRange):
                await read(node, offset=4)

        await world.live(life)

    simulate(main)


class LagMeter:
    """How long the loop was ever blocked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lag_s_max = 0.0

    async def run(self) -> None:
        while True:
            due = self._world.loop.time() + 0.01
            await asyncio.sleep(0.01)
            self.lag_s_max = max(self.lag_s_max, self._world.loop.time() - due)


def test_a_cold_read_blocks_a_thread_and_not_the_event_loop() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 40)

        await world.live(life)

        async def after(node: Node) -> None:
            meter = LagMeter(world)
            ticking = asyncio.ensure_future(meter.run())
            world.device.slow("read", 1)
            started = world.loop.time()
            assert found(await read(node)) == list(range(40))
            assert found(await read(node, offset=17)) == list(range(17, 40))
            assert found(await read(node, timestamp_ms=0)) == list(range(40))
            assert world.loop.time() - started > 1
            assert meter.lag_s_max < 0.1
            ticking.cancel()
            world.device.slow("read", 0)

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_what_is_read_does_not_depend_on_what_is_cached(rate: float) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            world.device.not_cached_rate = rate
            await fill(node, 60)
            assert found(await read(node)) == list(range(60))
            for at in range(60):
                assert found(await read(node, offset=at, limit=2)) == [at, at + 1][: 60 - at]

        await world.live(life)

    simulate(main)


def test_a_damaged_record_is_named_and_those_around_it_are_served() -> None:
    """Trap 6, on read."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await fill(node, 20)
            await asyncio.sleep(2)  # flushed
            bit = 8 * (4 * 175 + 120)
            world.device.flip_bit("logs/orders/0/00000000000000000000.log", bit)
            page = await read(node)
            first = page.next_offset
            assert found(page) == list(range(first))
            assert 0 < first < 8
            for _ in range(3):
                with pytest.raises(DataCorrupt) as caught:
                    await read(node, offset=first)
                assert (caught.value.start, caught.value.end) == (first, first + 1)
                assert caught.value.details["file"] == "logs/orders/0/00000000000000000000.log"
            assert counted(node, "storage_damage_total") == 1
            assert found(await read(node, offset=first + 1)) == list(range(first + 1, 20))
            assert found(await read(node, offset=first - 1)) == [first - 1]
            offsets(await publish(node, b"more"))

        await world.live(life)

    simulate(main)


def test_retention_may_take_a_segment_away_while_it_is_read() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024", retention_bytes="4096")
            world.device.not_cached_rate = 0.5
            results: list[int] = []

            async def reader() -> None:
                while True:
                    earliest = node.topics.partition("orders", 0).earliest
                    try:
                        page = await read(node, offset=earliest, limit=1_000)
                        await read(node, timestamp_ms=0, limit=1)
                    except OffsetOutOfRange:
                        continue
                    results.append(len(page.records))
                    await asyncio.sleep(world.device.rng.uniform(0, 0.1))

            readers = [asyncio.ensure_future(reader()) for _ in range(2)]
            for _ in range(30):
                for at in range(10):
                    await publish(node, b"%d" % at * 150, acks=Acks.LEADER)
                await asyncio.sleep(1)
            assert node.topics.partition("orders", 0).earliest > 150
            assert not any(task.done() for task in readers)
            for task in readers:
                task.cancel()
            assert len(await read_values(node)) < 150

        await world.live(life, config=NodeConfig(log=LogConfig(cleanup_interval_ms=500)))

    simulate(main)


def test_a_new_leader_does_not_tell_an_end_that_it_does_not_know_yet() -> None:
    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        await publish(node, b"shown")
        followers_of(partition).are_away = True
        await publish(node, b"not shown here yet", acks=Acks.LEADER)
        partition.take_over(PlayedLeadership(2, are_away=True))
        with pytest.raises(OffsetNotAvailable):
            await node.reader.read("orders", 0, ReadQuery(offset=0))  # it has not even begun
        await partition.lead()
        with pytest.raises(OffsetNotAvailable):
            await node.reader.read("orders", 0, ReadQuery(offset=0))
        assert len((await node.reader.read("orders", 0, ReadQuery(offset=0, to_offset=1))).records) == 1
        partition.raise_watermark(partition.log.end)
        page = await node.reader.read("orders", 0, ReadQuery(offset=0))
        assert (len(page.records), page.next_offset, page.high_watermark) == (2, 2, 2)

    in_one_life(life)


def test_a_new_leader_does_not_tell_where_an_earlier_epoch_ends_before_it_knows() -> None:
    """A client takes an end before its position for a log that was cut, and goes back there: to the beginning, where the leader had heard
    of nothing that is committed."""

    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        await publish(node, b"read by clients")
        followers_of(partition).are_away = True
        await publish(node, b"and this one on the leader before", acks=Acks.LEADER)
        partition.take_over(PlayedLeadership(2, are_away=True))
        with pytest.raises(OffsetNotAvailable):
            node.positions.epoch_end("orders", 0, 1)  # it has not even begun
        await partition.lead()
        with pytest.raises(OffsetNotAvailable):
            node.positions.epoch_end("orders", 0, 1)
        partition.raise_watermark(partition.log.end)
        assert node.positions.epoch_end("orders", 0, 1) == (1, 2)

    in_one_life(life)
