"""The simulated queue: clean on many seeds, the same run for the same seed, and whole after a torn write of a ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import pytest

from goqueue.log.scan import Found, Scanner
from goqueue.model.acks import Acks
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.requests import NewMessage
from goqueue.sim.broker import SimBroker
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.platter import FileNode
from goqueue.sim.queue.clock import JumpingClock
from goqueue.sim.runner import run_quietly

SEED_COUNT = 20  # `make sim SEEDS=1000` runs more
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

    run(main, seed=1)


def test_lease_that_a_power_cut_tore_leaves_no_record_behind() -> None:
    """A later lease survives it in the log, but builds on it: without both, everything can be given again."""

    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        await broker.call(_publish_ten, TIMEOUT_S)
        assert await _poll(broker, 4) == [0, 1, 2, 3]
        assert await _poll(broker, 4) == [4, 5, 6, 7]
        await broker.crash(power_cut=False)
        _tear(disk, LEDGER, 1)  # the first batch opens the group, the second is the first lease
        assert await broker.start()
        assert broker.problems == []
        assert await _poll(broker, 10) == list(range(10))
        await broker.crash(power_cut=True)
        assert await broker.start()
        assert await _poll(broker, 10) == []  # what came after the hole was made good counts
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
        assert await _poll(broker, 100) == [*range(10), *range(20, 30)]
        await broker.crash(power_cut=False)

    run(main, seed=1)


async def _publish_ten(node: Node) -> None:
    if not node.topics.list():
        await node.topics.create("jobs", partition_count=1, overrides={})
    messages = [NewMessage(NewRecord(None, b"x"), 0)] * 10
    await node.publisher.publish("jobs", messages, acks=Acks.ALL)


async def _poll(broker: SimBroker, limit: int) -> list[int]:
    poll = Poll("g", "m", [("jobs", 0)], limit, visibility_ms=10_000)
    return [one.record.offset for one in await broker.call(lambda node: node.queue.poll(poll), TIMEOUT_S)]


def _tear(disk: SimDisk, path: str, index: int) -> None:
    """The end of a batch never got to the disk."""
    node = disk.platter.find(path)
    assert isinstance(node, FileNode)
    file = disk.mount().open(path)
    batches = [
        item for item in Scanner(file, file.size(), check_crc=True).scan(0, 0) if isinstance(item, Found)
    ]
    end = batches[index].position + batches[index].header.size
    for content in (node.content, node.durable):
        content[end - 8 : end] = bytes(8)
