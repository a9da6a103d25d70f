"""Priorities through a whole node: nothing skipped, weights that are real, lists that may be lost, bounded memory."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.support.nodes import End, World, create, offsets, read_all, simulate

from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, build_batch, encode_batch
from goqueue.log.check import check_folder
from goqueue.log.compression import Codec
from goqueue.log.postings import BLOCK_COUNT, META_NAME, list_name
from goqueue.log.recovery import truncate_log
from goqueue.model.acks import Acks
from goqueue.model.errors import TopicNotFound
from goqueue.model.priority import LANE_COUNT, NORMAL, PRIORITY_HEADER, STARVATION_MS_MAX, WEIGHTS
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.queue import feed, postings
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.postings import LanePostings
from goqueue.node.queue.requests import Delivered
from goqueue.node.requests import NewMessage

FOLDER = "logs/orders/0"


def record(priority: int | None, value: bytes = b"") -> NewRecord:
    headers = () if priority is None else ((PRIORITY_HEADER, b"%d" % priority),)
    return NewRecord(None, value or b"p%d" % (NORMAL if priority is None else priority), headers)


async def send(node: Node, *priorities: int | None, acks: Acks = Acks.ALL) -> list[int]:
    messages = [NewMessage(record(one), 0) for one in priorities]
    return offsets(await node.publisher.publish("orders", messages, acks=acks))


async def poll(node: Node, limit: int = 100, *, group: str = "g", wait_ms: int = 0) -> list[Delivered]:
    return await node.queue.poll(Poll(group, "m", [("orders", 0)], limit, wait_ms))


async def take(node: Node, limit: int = 100, *, group: str = "g") -> list[Delivered]:
    """Poll and ack."""
    got = await poll(node, limit, group=group)
    if got:
        await node.queue.ack([one.receipt for one in got])
    return got


async def take_all(node: Node, limit: int = 100, *, group: str = "g") -> list[int]:
    """The offsets, in the order in which they came."""
    found: list[int] = []
    while got := await take(node, limit, group=group):
        found += [one.record.offset for one in got]
    return found


def partition_of(node: Node) -> Partition:
    return node._table.get("orders").partition(0)


def postings_of(node: Node) -> LanePostings:
    """Others than those that the queue uses, on the same files."""
    return node._queueing._postings_of(partition_of(node))


def lanes_of(delivered: Sequence[Delivered]) -> list[int]:
    return [int((one.record.value or b"")[1:]) for one in delivered]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_interleaved_priorities_are_all_delivered(limit: int) -> None:
    """Trap 1."""

    async def main(node: Node) -> None:
        await create(node)
        await send(node, 2, 2, 0, 4, None, 1, 2, 2)
        got = await take_all(node, limit)
        assert sorted(got) == list(range(8))
        assert got[0] == 2  # the critical one
        assert node.queue.committed("g", "orders", 0) == 8
        assert [one.offset for one in await read_all(node)] == list(range(8))  # offset readers notice nothing

    simulate(lambda world: world.live(main))


@pytest.mark.parametrize("limit", [1, 7, 100, 250])
def test_with_all_lanes_full_the_shares_are_the_weights(limit: int) -> None:
    """Trap 10."""

    async def main(node: Node) -> None:
        await create(node)
        for _ in range(60):
            await send(node, *[lane for lane in range(LANE_COUNT) for _ in range(10)])
        counts: Counter[int] = Counter()
        while counts.total() < 500:
            counts.update(lanes_of(await take(node, min(limit, 500 - counts.total()))))
        for lane, weight in enumerate(WEIGHTS):
            assert abs(counts[lane] / 500 - weight / 100) < 0.02
        rest = await take_all(node)
        assert len(rest) == 60 * 50 - 500

    simulate(lambda world: world.live(main))


def test_no_lane_waits_over_the_bound() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await send(node, *[lane for lane in range(LANE_COUNT) for _ in range(60)])
        served = dict.fromkeys(range(LANE_COUNT), asyncio.get_running_loop().time())
        for _ in range(50):
            now = asyncio.get_running_loop().time()
            for lane in lanes_of(await take(node, 1)):
                assert now - served[lane] <= STARVATION_MS_MAX / 1_000 + 0.5
                served[lane] = now
            await asyncio.sleep(4.9)
        assert min(served.values()) > 200

    simulate(lambda world: world.live(main))


def test_a_critical_record_overtakes_all_that_was_published_before() -> None:
    async def main(node: Node) -> None:
        await create(node)
        for _ in range(30):
            await send(node, *[None] * 100)
        assert len(await take(node, 10)) == 10  # and read ahead
        (offset,) = await send(node, 0)
        (got,) = await take(node, 1)
        assert got.record.offset == offset == 3_000

    simulate(lambda world: world.live(main))


def test_a_waiting_poll_gets_a_critical_record() -> None:
    async def main(node: Node) -> None:
        await create(node)
        waiting = asyncio.create_task(poll(node, wait_ms=20_000))
        await asyncio.sleep(3)
        await send(node, 4)
        assert lanes_of(await waiting) == [4]

    simulate(lambda world: world.live(main))


@pytest.mark.parametrize("end", list(End))
def test_priorities_survive_every_kind_of_end(end: End) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await send(node, *[4, None, 3, 1, 0] * 20)
            assert lanes_of(await take(node, 3)) == [0, 0, 0]

        async def second(node: Node) -> None:
            assert lanes_of(await take(node, 7)) == [0] * 7
            assert len(await take_all(node)) == 90

        await world.live(first, end=end)
        await world.live(second)

    simulate(main)


@pytest.mark.parametrize("codec", list(Codec))
def test_priorities_of_compressed_batches_count(codec: Codec) -> None:
    async def main(node: Node) -> None:
        await create(node)
        batch = build_batch([record(one) for one in (None, 4, 0)], node.clock.now_ms(), codec=codec)
        await node.publisher.append_batch("orders", 0, batch, acks=Acks.ALL)
        assert [one.record.offset for one in await take(node)] == [2, 0, 1]

    simulate(lambda world: world.live(main))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_critical_record_of_a_transaction_comes_when_it_is_committed_and_never_if_it_is_aborted(
    is_commit: bool,
) -> None:
    """Trap 2: the group has read past it meanwhile."""

    async def main(node: Node) -> None:
        await create(node)
        await send(node, None)
        partition, now_ms = partition_of(node), node.clock.now_ms()
        header, batch = encode_batch(
            [record(0), record(None)],
            now_ms,
            producer=Producer(7, 0, 0),
            attributes=ATTRIBUTE_TRANSACTIONAL,
        )
        partition.append(batch, header, now_ms=now_ms)
        await send(node, 0, None)
        assert await take_all(node) == [0]
        partition.append_marker(7, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=now_ms)
        assert sorted(await take_all(node)) == ([1, 2, 3, 4] if is_commit else [3, 4])
        assert node.queue.committed("g", "orders", 0) == 6

    simulate(lambda world: world.live(main))


# -------------------------------------------------------------------- the lists


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are saved after every few records, and looks at the log that are short."""
    monkeypatch.setattr(postings, "_SAVE_BYTES", 2_000)
    monkeypatch.setattr(postings, "_SPILL_COUNT", 20)
    monkeypatch.setattr(postings, "_GLANCE_BYTES", 300)
    monkeypatch.setattr(postings, "_CHUNK_BYTES", 1_000)


async def fill(node: Node, batches: int = 30) -> list[int]:
    """Of each batch the first record is critical; where those are."""
    return [(await send(node, 0, None, 4, *[None] * 7))[0] for _ in range(batches)]


async def idle(lists: LanePostings) -> None:
    """Until the lists are saved."""
    if lists._task is not None:
        await asyncio.wait([lists._task])


@pytest.mark.usefixtures("eager")
def test_a_backlog_is_served_while_it_is_looked_at() -> None:
    """What is known of the lanes comes first; nothing comes twice or not at all."""

    async def main(node: Node) -> None:
        await create(node)
        await fill(node, 300)
        (last,) = await send(node, 0)
        first = await take(node, 20)
        assert len(first) == 20
        assert last not in [one.record.offset for one in first]  # it is too far away yet
        await asyncio.sleep(2)
        rest = await take_all(node, 50)
        assert rest.index(last) < 600
        assert sorted([one.record.offset for one in first] + rest) == list(range(3_001))

    simulate(lambda world: world.live(main))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("priority", [0, 4])
def test_a_poll_goes_on_through_a_long_stretch_of_one_lane(
    priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_LOOK_BYTES_MAX", 1_000)

    async def main(node: Node) -> None:
        await create(node)
        for _ in range(50):
            await send(node, *[priority] * 20)
        (normal,) = await send(node, None)
        found: list[int] = []
        while len(found) < 1_001:
            got = await poll(node, 70, wait_ms=1_000)
            assert got
            found += [one.record.offset for one in got]
            await node.queue.ack([one.receipt for one in got])
        assert sorted(found) == list(range(1_001))
        assert normal in found

    simulate(lambda world: world.live(main))


@pytest.mark.usefixtures("eager")
def test_lists_are_saved_and_found_again() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            wanted = await fill(node)
            lists = postings_of(node)
            assert await lists.find(0, 0, 300, 1_000) == wanted
            assert await lists.find(0, 55, 300, 2) == [60, 70]
            assert await lists.find(4, 0, 25, 1_000) == [2, 12, 22]
            assert await lists.depth(0, 0, 300) == 30
            assert await lists.depth(4, 55, 100) == 4
            await idle(lists)

        async def second(node: Node) -> None:
            lists = postings_of(node)
            assert await lists.depth(0, 0, 300) >= 20  # without another look
            assert await lists.find(0, 0, 300, 1_000) == list(range(0, 300, 10))

        await world.live(first, end=End.POWER_CUT)
        await world.live(second)
        assert check_folder(world.device.mount()).problems == []

    simulate(main)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", [META_NAME, list_name(0), list_name(4)])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damaged_lists_are_made_anew(name: str, harm: str) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await fill(node)
            lists = postings_of(node)
            await lists.find(0, 0, 300, 1_000)
            await idle(lists)

        async def second(node: Node) -> None:
            assert sorted(await take_all(node)) == list(range(300))

        await world.live(first)
        path = f"{FOLDER}/{name}"
        if harm == "flip":
            world.device.flip_bit(path, 8 * 9 + 3)
        else:
            mount = world.device.mount()
            mount.open(path).truncate(9) if harm == "cut" else mount.remove(path)
        await world.live(second)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_lists_that_go_bad_while_they_are_used_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            wanted = await fill(node)
            lists = postings_of(node)
            await lists.find(0, 0, 300, 1_000)
            await idle(lists)
            assert world.alive is not None
            world.alive.disk.open(f"{FOLDER}/{list_name(0)}").truncate(16)
            assert await lists.find(0, 0, 300, 1_000) == wanted
            assert await lists.find(4, 0, 300, 1_000) == [one + 2 for one in wanted]

        await world.live(life)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_lists_that_are_ahead_of_a_log_that_was_cut_go_back_with_it() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await fill(node)
        lists, partition = postings_of(node), partition_of(node)
        await lists.find(0, 0, 300, 1_000)
        await idle(lists)
        truncate_log(partition.log, node._disk, partition._producers, 150, forced=True)
        assert await lists.find(0, 100, 300, 1_000) == [100, 110, 120, 130, 140]
        partition.is_led = False
        await send(node, *[1] * 20)
        assert await lists.find(0, 100, 300, 1_000) == [100, 110, 120, 130, 140]
        assert await lists.find(1, 0, 300, 1_000) == list(range(150, 170))

    simulate(lambda world: world.live(main))


@pytest.mark.usefixtures("eager")
def test_lists_of_records_that_a_power_cut_took_back_are_not_believed() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await send(node, *[1] * 10)
            world.device.slow("sync", 60)  # what follows never gets to the disk
            for _ in range(10):
                await send(node, *[0] * 10, acks=Acks.LEADER)
            assert len(await postings_of(node).find(0, 0, 110, 1_000)) == 100

        async def second(node: Node) -> None:
            world.device.calm()
            end = node.topics.partition("orders", 0).latest
            await send(node, *[4] * 150)
            lists = postings_of(node)
            assert await lists.find(0, 0, 1_000, 1_000) == list(range(10, end))
            assert await lists.find(4, 0, 1_000, 1_000) == list(range(end, end + 150))

        await world.live(first, end=End.POWER_CUT)
        await world.live(second)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_those_who_ask_at_the_same_time_share_one_look_and_one_who_goes_away_does_not_stop_it() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            wanted = await fill(node)
            size = node.topics.partition("orders", 0).size_bytes
            before = world.device.counters.read_bytes
            lists = postings_of(node)
            asking = [asyncio.create_task(lists.find(0, 0, 300, 1_000)) for _ in range(10)]
            await asyncio.sleep(0)
            asking[0].cancel()
            answers = await asyncio.gather(*asking[1:])
            assert answers == [wanted] * 9
            assert world.device.counters.read_bytes - before < 4 * size

        await world.live(life)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_a_look_goes_on_when_nobody_waits_any_more() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await fill(node)
        lists = postings_of(node)
        asking = asyncio.create_task(lists.find(0, 0, 300, 1_000))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(1)
        assert lists.known_end == 300

    simulate(lambda world: world.live(main))


@pytest.mark.usefixtures("eager")
def test_a_deleted_topic_leaves_no_lists_and_a_new_one_of_its_name_has_its_own() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await fill(node)
            lists = postings_of(node)
            asking = asyncio.create_task(lists.find(0, 0, 300, 1_000))
            await asyncio.sleep(0.002)  # in the middle of a look
            await node.topics.delete("orders")
            with pytest.raises(TopicNotFound):
                await asking
            assert world.seen(FOLDER, "") == []
            await create(node)
            await send(node, None, 0)
            assert await postings_of(node).find(0, 0, 2, 9) == [1]
            assert [one.record.offset for one in await take(node)] == [1, 0]

        await world.live(life)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_a_list_is_shortened_when_the_log_begins_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for _ in range(3):
                await send(node, *[0] * BLOCK_COUNT)
            end = 3 * BLOCK_COUNT
            lists = postings_of(node)
            assert len(await lists.find(0, 0, end, end)) == end
            await idle(lists)
            assert world.alive is not None
            assert world.alive.disk.open(f"{FOLDER}/{list_name(0)}").size() == 8 * end
            await node.topics.delete_records("orders", 0, end - 100)
            (offset,) = await send(node, 0)
            assert await lists.find(0, end - 50, end + 1, end) == [*range(end - 50, end), offset]
            await idle(lists)
            assert world.alive.disk.open(f"{FOLDER}/{list_name(0)}").size() <= 8 * (BLOCK_COUNT + 101)

        await world.live(life)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_a_full_disk_does_not_stop_the_lanes() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            wanted = await fill(node)
            for _ in range(50):
                world.device.fail_next("append", error=errno.ENOSPC)
            lists = postings_of(node)
            assert await lists.find(0, 0, 300, 1_000) == wanted
            await idle(lists)
            world.device.calm()

        await world.live(life)

    simulate(main)


def test_plain_records_are_found_without_a_list() -> None:
    """And without a file: nobody pays for lanes that nobody uses."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await send(node, *[None] * 500)
            assert await take_all(node) == list(range(500))
            assert [name for name in world.seen(FOLDER, "") if "posting" in name] == []

        await world.live(life)

    simulate(main)


@pytest.mark.usefixtures("eager")
def test_memory_does_not_grow_with_the_backlog() -> None:
    """Trap 5, in small; ADR 7 has the numbers of ten million."""

    async def main(node: Node) -> None:
        await create(node)
        for _ in range(40):
            await send(node, *[0, 1, 2, 3, 4] * 100)
        lists = postings_of(node)
        assert len(await lists.find(4, 0, 20_000, 10_000)) == 4_000
        await idle(lists)
        assert lists._lists is not None
        assert lists._lists.unsaved_count < 20 + 500  # of the last batch
        assert sum(len(one.stored.firsts) for one in lists._lists.lanes.values()) == 4

    simulate(lambda world: world.live(main))
