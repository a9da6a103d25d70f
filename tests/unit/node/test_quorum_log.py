"""Raft's log, vote and snapshot on disk: what is written is found again, also after a power cut, and damage is put aside."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from goqueue.core.raft.messages import Entry, EntryKind, Snapshot
from goqueue.core.raft.raft import HardState, Ready, Restored
from goqueue.model.errors import GoQueueError, StorageError
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.threads import Threads
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process

VOTERS = ("n1", "n2", "n3")
FOLDER = "logs/__cluster_metadata/0"


class Device:
    """One disk, and the processes that open the quorum's log on it one after another."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.disk = SimDisk(Random(1), not_cached_rate=0.0, stall=loop.stall)

    async def live(
        self,
        main: Callable[[QuorumLog, Restored], Awaitable[None]],
        *,
        power_cut: bool = False,
        may_rejoin: bool = True,
    ) -> None:
        process = Process(self.loop, "n1", self.disk)

        async def life() -> None:
            tasks: set[asyncio.Task[None]] = set()

            def spawn(work: Awaitable[None]) -> asyncio.Task[None]:
                task = asyncio.ensure_future(work)
                tasks.add(task)
                return task

            threads = Threads(1)
            opener = PartitionOpener(
                process.disk, threads, Metrics(), spawn, lambda _: None, sync_timeout_ms=10_000, is_solo=False
            )
            log = QuorumLog(process.disk, opener, threads, SimClock(self.loop))
            await main(log, await log.open(VOTERS, may_rejoin=may_rejoin))

        try:
            await process.spawn(life())
        finally:
            await process.crash(power_cut=power_cut)


def simulate(main: Callable[[Device], Awaitable[None]]) -> None:
    async def scenario(loop: SimLoop) -> None:
        await main(Device(loop))

    run(scenario, seed=1)


def entries(first: int, *terms: int, kind: EntryKind = EntryKind.COMMAND) -> tuple[Entry, ...]:
    return tuple(
        Entry(first + at, term, kind, b"%d in term %d" % (first + at, term)) for at, term in enumerate(terms)
    )


def ready(*found: Entry, state: HardState | None = None, snapshot: Snapshot | None = None) -> Ready:
    return Ready(state=state, snapshot=snapshot, entries=found, messages=(), committed=(), restored=None)


def test_an_empty_disk_knows_the_configured_voters_and_nothing_else() -> None:
    async def main(device: Device) -> None:
        async def life(log: QuorumLog, restored: Restored) -> None:
            assert restored == Restored(HardState(0, None), None, (), VOTERS)

        await device.live(life)

    simulate(main)


@pytest.mark.parametrize("power_cut", [False, True])
def test_what_was_persisted_is_found_again(power_cut: bool) -> None:
    written = (*entries(1, 1, kind=EntryKind.NOOP), *entries(2, 1, 1, 2, 5))

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*written[:3], state=HardState(1, "n2")))
            await log.persist(ready(*written[3:], state=HardState(5, "n3")))

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.entries == written
            assert restored.state == HardState(5, "n3")

        await device.live(first, power_cut=power_cut)
        await device.live(second)

    simulate(main)


def test_entries_replace_what_was_there_from_their_index_on() -> None:
    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1, 1, 2)))
            await log.persist(ready(*entries(3, 3), state=HardState(3, None)))
            assert log.partition.log.end == 3

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.entries == (*entries(1, 1, 1), *entries(3, 3))

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def test_a_vote_is_not_carried_into_a_later_term() -> None:
    """The entries of a term may be durable before its vote is."""

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(state=HardState(4, "n2")))
            await log.persist(ready(*entries(1, 7)))

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.state == HardState(7, None)

        await device.live(first)
        await device.live(second)

    simulate(main)


def test_a_snapshot_takes_the_place_of_the_log_before_it() -> None:
    snapshot = Snapshot(3, 2, ("n1", "n2"), b"everything up to the third")

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1, 2, 2)))
            await log.save_snapshot(snapshot)
            await log.forget_before(snapshot)
            assert log.partition.log.log_start == 3

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.snapshot == snapshot
            assert restored.entries == entries(4, 2)

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def test_a_snapshot_of_another_node_replaces_everything() -> None:
    snapshot = Snapshot(30, 4, VOTERS, b"far ahead")

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1)))
            await log.persist(ready(*entries(31, 4), snapshot=snapshot, state=HardState(4, None)))

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.snapshot == snapshot
            assert restored.entries == entries(31, 4)

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def test_a_snapshot_of_another_node_counts_although_the_log_did_not_come_to_begin_behind_it() -> None:
    snapshot = Snapshot(30, 4, VOTERS, b"far ahead")

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1)))
            await log.save_snapshot(snapshot)  # as when one is installed, and the power fails right then

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert (restored.snapshot, restored.entries) == (snapshot, ())
            await log.persist(ready(*entries(31, 4), state=HardState(4, None)))

        async def third(log: QuorumLog, restored: Restored) -> None:
            assert (restored.snapshot, restored.entries) == (snapshot, entries(31, 4))

        await device.live(first, power_cut=True)
        await device.live(second, power_cut=True)
        await device.live(third)

    simulate(main)


def test_after_a_failure_a_snapshot_of_another_node_is_durable_or_does_not_count() -> None:
    snapshot = Snapshot(30, 4, VOTERS, b"far ahead")

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1)))
            device.disk.fail_next("sync_dir", error=errno.EIO)
            with pytest.raises(OSError, match="Errno 5"):
                await log.persist(ready(*entries(31, 4), snapshot=snapshot))
            found = await log.reload(VOTERS)
            assert (found.snapshot, found.entries) == (snapshot, ())
            await log.persist(ready(*entries(31, 4)))

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert (restored.snapshot, restored.entries) == (snapshot, entries(31, 4))

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def test_after_a_failed_fsync_only_what_was_durable_before_counts() -> None:
    """The page cache has the rest, and would give it back to whoever reads. A node that tells others that it has it lies."""

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1), state=HardState(1, "n2")))
            device.disk.fail_next("sync")
            with pytest.raises(StorageError, match="could not be written to disk"):
                await log.persist(ready(*entries(3, 1, 1)))
            assert (log.partition.log.durable_end, log.partition.log.end) == (2, 4)
            again = await log.reload(VOTERS)
            assert again == Restored(HardState(1, "n2"), None, entries(1, 1, 1), VOTERS)

        await device.live(first, power_cut=True)

    simulate(main)


def test_after_a_failed_fsync_a_snapshot_and_what_was_durable_behind_it_counts() -> None:
    snapshot = Snapshot(2, 1, VOTERS, b"everything up to the second")

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1, 1), state=HardState(1, None)))
            await log.save_snapshot(snapshot)
            await log.forget_before(snapshot)
            device.disk.fail_next("sync")
            with pytest.raises(StorageError, match="could not be written to disk"):
                await log.persist(ready(*entries(4, 1)))
            again = await log.reload(VOTERS)
            assert again == Restored(HardState(1, None), snapshot, entries(3, 1), VOTERS)

        await device.live(first)

    simulate(main)


def test_what_an_append_without_space_left_behind_is_written_again() -> None:
    """It failed in the middle, nothing was synced, and the log goes on."""

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1)))
            device.disk.fail_next("append", error=errno.ENOSPC, after=1)
            with pytest.raises(GoQueueError):
                await log.persist(ready(*entries(3, 1, 1)))
            again = await log.reload(VOTERS)
            assert again.entries == entries(1, 1, 1)
            await log.persist(ready(*entries(3, 1, 2), state=HardState(2, None)))

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.entries == entries(1, 1, 1, 1, 2)

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def test_a_vote_that_may_not_have_reached_the_disk_is_written_again_before_it_counts() -> None:
    """Its file was replaced, and the folder could not be synced: whoever reads it finds the new vote, and after a power cut the old one,
    and could vote once more in the same term."""

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(state=HardState(1, "n2")))
            device.disk.fail_next("sync_dir")
            with pytest.raises(OSError, match="Input/output error"):
                await log.persist(ready(state=HardState(2, "n3")))
            assert b"n2" in device.disk.snapshot()[f"{FOLDER}/quorum"]
            again = await log.reload(VOTERS)
            assert again.state == HardState(2, "n3")
            assert b"n3" in device.disk.snapshot()[f"{FOLDER}/quorum"]

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.state == HardState(2, "n3")

        await device.live(first, power_cut=True)
        await device.live(second)

    simulate(main)


def _flip(device: Device, name: str) -> None:
    (path,) = [path for path in device.disk.snapshot() if path == f"{FOLDER}/{name}"]
    device.disk.flip_bit(path, 8 * (len(device.disk.snapshot()[path]) // 2))


@pytest.mark.parametrize("name", ["00000000000000000000.log", "quorum"])
def test_damage_is_put_aside_where_others_can_give_it_back(name: str) -> None:
    """Until they have, the node may neither vote nor count."""

    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1, 1), state=HardState(1, "n2")))
            await log.partition.commit.checkpoint()

        async def second(log: QuorumLog, restored: Restored) -> None:
            assert restored.state.is_recovering
            assert restored.entries == ()
            await log.persist(ready(*entries(1, 2), state=HardState(2, None)))

        async def third(log: QuorumLog, restored: Restored) -> None:
            assert restored.entries == entries(1, 2)
            assert restored.state == HardState(2, None)

        await device.live(first)
        _flip(device, name)
        await device.live(second)
        assert any(path.startswith("quarantine/logs/__cluster_metadata") for path in device.disk.snapshot())
        await device.live(third)

    simulate(main)


def test_damage_stops_a_node_that_is_alone() -> None:
    async def main(device: Device) -> None:
        async def first(log: QuorumLog, restored: Restored) -> None:
            await log.persist(ready(*entries(1, 1, 1, 1), state=HardState(1, "n1")))

        async def second(log: QuorumLog, restored: Restored) -> None:
            raise AssertionError("it came up")

        await device.live(first)
        _flip(device, "quorum")
        with pytest.raises(StorageError, match=r"checksum of .*quorum does not match"):
            await device.live(second, may_rejoin=False)

    simulate(main)
