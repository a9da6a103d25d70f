"""The simulated queue: clean on many seeds, the same run for the same seed, and whole after damage to a ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import msgspec
import pytest

from goqueue.log.batch import decode_batch
from goqueue.log.check import check_folder
from goqueue.log.scan import Found, Scanner
from goqueue.model.acks import Acks
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.queue import ledger
from goqueue.node.queue.polling import Poll
from goqueue.node.requests import NewMessage
from goqueue.sim.broker import SimBroker
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.platter import FileNode
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.runner import run_quietly

SEED_COUNT = 10  # `make sim SEEDS=1000` runs more
TIMEOUT_S = 30.0
JOBS = "logs/jobs/0/00000000000000000000.log"
LEDGER = "logs/__ledger.jobs/0/00000000000000000000.log"


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """`run_quietly` turns logging off for its process; that must not outlast these tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEED_COUNT, 5))
def test_no_invariant_is_broken_whatever_fails(first: int) -> None:
    for seed in range(first, first + 5):
        outcome = run_quietly(("queue", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload queue --seed {seed}"


def test_same_seed_gives_the_same_run() -> None:
    assert run_quietly(("queue", 4)) == run_quietly(("queue", 4))


def test_clock_knows_the_latest_time_it_showed() -> None:
    async def main(loop: SimLoop) -> None:
        clock = JumpingClock(loop)
        start_ms = clock.now_ms()
        await asyncio.sleep(1)
        clock.jump(5_000)
        await asyncio.sleep(1)
        clock.jump(-6_000)
        await asyncio.sleep(1)
        assert clock.now_ms() == start_ms + 2_000
        assert clock.latest_ms(0.0, 3.0) == start_ms + 7_000
        assert clock.latest_ms(2.5, 3.0) == start_ms + 2_000
        assert clock.latest_ms(0.0, 0.5) == start_ms + 500
        assert clock.earliest_ms(0.5, 3.0) == start_ms + 500
        assert clock.earliest_ms(1.5, 3.0) == start_ms + 1_000
        assert clock.earliest_ms(1.2, 1.8) == start_ms + 6_200

    run(main, seed=1)


def test_damaged_lease_comes_again_and_nothing_else_does() -> None:
    """A later lease builds on it, and its cursor has passed what was in it."""

    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        await broker.call(_publish_ten, TIMEOUT_S)
        assert await _poll(broker, 4) == [0, 1, 2, 3]
        assert await _poll(broker, 4, _ack) == [4, 5, 6, 7]
        await broker.crash(power_cut=False)
        _tear(disk, LEDGER, 1)  # the first batch opens the group, the second is the first lease
        assert await broker.start()
        assert broker.problems == []
        assert await _poll(broker, 10) == [8, 9]
        await asyncio.sleep(3)  # a lease that is over, and the backoff
        assert await _poll(broker, 10) == [0, 1, 2, 3]
        await broker.crash(power_cut=True)
        assert await broker.start()
        assert await _poll(broker, 10) == []  # what came after the hole was made good counts
        await broker.stop()
        assert any("__ledger.jobs" in problem for problem in check_folder(disk.mount()).problems)

    run(main, seed=1)


def test_dead_letter_after_a_damaged_one_is_not_taken_for_it() -> None:
    """The ledger has forgotten that it has moved something; the sequence of the next must not be the same."""

    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        await broker.call(_publish_ten, TIMEOUT_S)
        assert await _poll(broker, 1, _reject) == [0]
        await asyncio.sleep(1)
        await broker.crash(power_cut=False)
        _tear(disk, LEDGER, 2)  # opened, leased, moving
        assert await broker.start()
        assert await _poll(broker, 1, _reject) == [1]
        await asyncio.sleep(1)
        assert await broker.call(_dead_count, TIMEOUT_S) == 2
        await broker.crash(power_cut=False)

    run(main, seed=1)


@pytest.mark.parametrize("torn", range(3))
def test_damaged_snapshot_costs_nothing(torn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before it is still there, and what came since."""
    monkeypatch.setattr(ledger, "_SNAPSHOT_BYTES_MIN", 300)

    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        for _ in range(10):
            await broker.call(_publish_ten, TIMEOUT_S)
        for _ in range(28):
            await _poll(broker, 3, _ack)
        assert await _poll(broker, 2) == [84, 85]
        await broker.crash(power_cut=False)
        kinds = _kinds(disk)
        assert kinds.count("snapshot") >= 2
        last = len(kinds) - 1 - kinds[::-1].index("snapshot")
        parts = [
            at for at in range(last, len(kinds)) if kinds[at] in ("snapshot", "window", "entries", "end")
        ]
        _tear(disk, LEDGER, parts[torn])
        assert await broker.start()
        assert await _poll(broker, 12) == list(range(86, 96))
        await broker.crash(power_cut=False)

    run(main, seed=1)


def test_damaged_record_does_not_stop_its_partition() -> None:
    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        for _ in range(3):
            await broker.call(_publish_ten, TIMEOUT_S)
        await broker.crash(power_cut=False)
        _tear(disk, JOBS, 1)
        assert await broker.start()
        assert await _poll(broker, 12, _ack) == [*range(10), 20, 21]
        assert await _poll(broker, 12, _ack) == [*range(22, 30)]
        await broker.crash(power_cut=False)

    run(main, seed=1)


async def _publish_ten(node: Node) -> None:
    if not node.topics.list():
        await node.topics.create("jobs", partition_count=1, overrides={})
    messages = [NewMessage(NewRecord(None, b"x"), 0)] * 10
    await node.publisher.publish("jobs", messages, acks=Acks.ALL)


async def _ack(node: Node, receipts: list[str]) -> None:
    await node.queue.ack(receipts)


async def _reject(node: Node, receipts: list[str]) -> None:
    await node.queue.reject(receipts, reason="never")


async def _dead_count(node: Node) -> int:
    return node.topics.partition("jobs.dlq", 0).latest


async def _poll(
    broker: SimBroker, limit: int, then: Callable[[Node, list[str]], Awaitable[None]] | None = None
) -> list[int]:
    async def use(node: Node) -> list[int]:
        found = await node.queue.poll(Poll("g", "m", [("jobs", 0)], limit, visibility_ms=10_000))
        if then is not None:
            await then(node, [one.receipt for one in found])
        return [one.record.offset for one in found]

    return await broker.call(use, TIMEOUT_S)


def _batches(disk: SimDisk, path: str) -> list[Found]:
    file = disk.mount().open(path)
    return [item for item in Scanner(file, file.size(), check_crc=True).scan(0, 0) if isinstance(item, Found)]


def _kinds(disk: SimDisk) -> list[str]:
    """The tag of the first event of each batch of the ledger."""
    tags = []
    for batch in _batches(disk, LEDGER):
        record = next(decode_batch(batch.data, batch.header))
        tags.append(str(msgspec.msgpack.decode(record.value or b"")[0]))
    return tags


def _tear(disk: SimDisk, path: str, index: int) -> None:
    """The end of a batch never got to the disk."""
    node = disk.platter.find(path)
    assert isinstance(node, FileNode)
    batches = _batches(disk, path)
    end = batches[index].position + batches[index].header.size
    for content in (node.content, node.durable):
        content[end - 8 : end] = bytes(8)
