"""A query whose broker loses power again and again: each of its batches is written exactly once, whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.support.joints import JOINT, abort, commit, known_ids, winners
from tests.support.nodes import Died, End, World, create, simulate
from tests.support.transactional import Sender, committed, is_held_up

from goqueue.core.txn.joint import AlreadyCommitted
from goqueue.model.errors import ConcurrentTransactions, DataCorrupt, GoQueueError
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery

PARTITIONS = (0, 1)
TIMEOUT_MS = 10_000


@dataclass
class Query:
    """Writes numbered batches with several tasks, each its name into every partition. After whatever goes wrong it begins
    the batch again that it has not heard the commit of, with other tasks: as Spark does after a restart."""

    batch: int = 0
    attempt: int = 0
    is_unheard: bool = False  # of the commit of this batch
    heard: list[int] = field(default_factory=list)
    told_before: list[int] = field(default_factory=list)  # that it was committed already

    async def run(self, node: Node) -> None:
        for _ in range(4):
            self.attempt += 1
            await self._write(node)
            self.heard.append(self.batch)
            self.batch += 1

    async def _write(self, node: Node) -> None:
        names = [f"{self.attempt}-{number}" for number in range(1 + self.attempt % 3)]
        loser = await self._task(node, f"{self.attempt}-speculative")
        tasks = await asyncio.gather(*(self._task(node, name) for name in names))
        written = [task for task in tasks if task is not None]
        if loser is None or len(written) < len(names):
            self.told_before.append(self.batch)
            assert self.is_unheard
            assert (loser, written) == (None, [])
        self.is_unheard = True
        was_committed = await node.transactions.joints.commit(JOINT, self.batch, winners(written))
        assert was_committed == (loser is None)
        self.is_unheard = False

    async def _task(self, node: Node, name: str) -> Sender | None:
        while True:
            try:
                reply = await node.transactions.joints.enrol(JOINT, self.batch, name, TIMEOUT_MS)
                break
            except ConcurrentTransactions:
                await asyncio.sleep(0.02)
        if isinstance(reply, AlreadyCommitted):
            return None
        sender = Sender(reply.transactional_id, who=reply.producer)
        for partition in PARTITIONS:
            await sender.write(node, f"{self.batch}/{name}".encode(), partition=partition)
        return sender

    async def check(self, node: Node) -> None:
        """What readers have is whole batches of one attempt each, none twice; no loser's; all that was heard of."""
        for _ in range(200):  # until what a crash left is complete; open members wait for their time-out
            if not await known_ids(node) or all(
                [not await is_held_up(node, partition=p) for p in PARTITIONS]
            ):
                break
            await asyncio.sleep(0.1)
        seen = [await self._batches(node, partition) for partition in PARTITIONS]
        assert seen[0] == seen[1]
        expected = set(self.heard)
        assert expected <= set(seen[0]) <= expected | ({self.batch} if self.is_unheard else set())

    async def _batches(self, node: Node, partition: int) -> dict[int, set[str]]:
        found: dict[int, list[str]] = {}
        for value in await everything_committed(node, partition):
            number, _, name = value.decode().partition("/")
            found.setdefault(int(number), []).append(name)
        for batch, names in found.items():
            (attempt,) = {int(name.partition("-")[0]) for name in names}
            assert sorted(names) == [f"{attempt}-{number}" for number in range(1 + attempt % 3)], batch
        return {batch: set(names) for batch, names in found.items()}


async def everything_committed(node: Node, partition: int) -> list[bytes]:
    """Past what a power cut tore: nobody was told that it is stored."""
    values: list[bytes] = []
    offset = 0
    while True:
        try:
            page = await node.reader.read("orders", partition, ReadQuery(offset=offset, limit=1_000))
        except DataCorrupt as error:
            offset = error.end
            continue
        values += [record.value or b"" for record in page.records]
        if page.next_offset == offset:
            return values
        offset = page.next_offset


async def crashing(world: World, query: Query, operation: int) -> None:
    """A life in which the power fails at some operation of the disk, if it comes that far."""

    async def life(node: Node) -> None:
        world.device.crash_after(operation)
        await query.run(node)

    try:
        await world.live(life)
    except (Died, GoQueueError):
        pass
    finally:
        world.device.calm()


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_at_any_moment_leaves_each_batch_written_once_and_whole(seed: int) -> None:
    async def main(world: World) -> None:
        query = Query()

        async def prepare(node: Node) -> None:
            await create(node, partition_count=len(PARTITIONS))
            await query.run(node)

        await world.live(prepare)
        for _ in range(12):
            await crashing(world, query, world.device.rng.randint(1, 250))
            await world.live(query.check, end=world.device.rng.choice(list(End)))
        assert query.batch > 4

        async def finish(node: Node) -> None:
            await query.run(node)
            await query.check(node)
            await asyncio.sleep(TIMEOUT_MS / 1_000 + 1)
            assert await known_ids(node) == []
            for partition in PARTITIONS:
                assert not await is_held_up(node, partition=partition)

        await world.live(finish)

    simulate(main, seed=seed)


def test_some_of_those_power_cuts_come_between_the_verdict_and_its_answer() -> None:
    """Else the tests above would not show that a batch is not committed twice."""

    async def main(world: World) -> None:
        query = Query()

        async def prepare(node: Node) -> None:
            await create(node, partition_count=len(PARTITIONS))
            await query.run(node)

        await world.live(prepare)
        for operation in range(1, 120, 4):
            await crashing(world, query, operation)
            await world.live(query.check)
        assert query.told_before

    simulate(main)


@pytest.mark.parametrize("seed", range(4))
def test_without_a_successor_a_crashed_batch_ends_by_itself(seed: int) -> None:
    async def main(world: World) -> None:
        query = Query()

        async def prepare(node: Node) -> None:
            await create(node, partition_count=len(PARTITIONS))

        async def wait(node: Node) -> None:
            await asyncio.sleep(TIMEOUT_MS / 1_000 + 1)
            assert await known_ids(node) == []
            for partition in PARTITIONS:
                assert not await is_held_up(node, partition=partition)

        await world.live(prepare)
        for _ in range(12):
            await crashing(world, query, world.device.rng.randint(1, 250))
            await world.live(wait, end=world.device.rng.choice(list(End)))

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_two_drivers_that_write_the_same_batch_commit_it_once(seed: int) -> None:
    """One was thought dead. Whoever is first wins; the other is told, and what it wrote is not seen."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)

            async def drive(name: str) -> bool:
                await asyncio.sleep(world.device.rng.uniform(0, 0.01))
                reply = await node.transactions.joints.enrol(JOINT, 0, name, TIMEOUT_MS)
                if isinstance(reply, AlreadyCommitted):
                    return await commit(node)
                sender = Sender(reply.transactional_id, who=reply.producer)
                try:
                    await sender.write(node, name.encode())
                except GoQueueError:  # the other was faster
                    return await commit(node)
                return await commit(node, sender)

            results = await asyncio.gather(*(drive(name) for name in "abcd"))
            assert sorted(results) == [False, True, True, True]
            assert await committed(node) == ["abcd"[results.index(False)].encode()]
            assert await abort(node) is True

        await world.live(life)

    simulate(main, seed=seed)
