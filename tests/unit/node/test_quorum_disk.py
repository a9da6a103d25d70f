"""A voter whose disk fails for a moment: it neither ends, nor says that it has what it may not have."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from random import Random

import pytest

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import Message
from goqueue.model.errors import StorageError
from goqueue.node.cluster import quorum as quorum_module
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.metrics import Metrics
from goqueue.node.opening import PartitionOpener
from goqueue.node.threads import Threads
from goqueue.sim.broker import SimClock
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run

VOTERS = ("n1", "n2")
PAUSE_S = quorum_module._SNAPSHOT_PAUSE_MS / 1_000


class Machine:
    """Remembers what it was told, and how often it was asked for all of it."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.snapshot_count = 0

    def apply(self, index: int, payload: bytes) -> None:
        self.applied.append(payload)

    def snapshot(self) -> bytes:
        self.snapshot_count += 1
        return b"\n".join(self.applied)

    def restore(self, index: int, payload: bytes) -> None:
        raise AssertionError("nobody is so far behind")


class Voter:
    def __init__(self, loop: SimLoop, name: str, pair: Pair) -> None:
        self.disk = SimDisk(Random(1), not_cached_rate=0.0, stall=loop.stall)
        self.machine = Machine()
        self._tasks: list[asyncio.Task[None]] = []
        threads, mount = Threads(1), self.disk.mount()
        opener = PartitionOpener(
            mount, threads, Metrics(), self._spawn, lambda _: None, sync_timeout_ms=10_000, is_solo=False
        )
        self.quorum = Quorum(
            RaftConfig(name),
            QuorumLog(mount, opener, threads, SimClock(loop)),
            self.machine,
            pair.send,
            lambda _: 0,
            self._spawn,
            timeout_ms=5_000,
        )

    async def start(self) -> None:
        await self.quorum.start(VOTERS)
        self._running = self._tasks[-1]

    @property
    def has_ended(self) -> bool:
        """What it does all the time has come to an end, which no node survives."""
        return self._running.done()

    @property
    def snapshots(self) -> list[str]:
        """That are on its disk for sure."""
        return [path for path in self.disk.snapshot() if path.endswith(".snapshot")]

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]


class Pair:
    """Two voters who hear everything that the other says."""

    def __init__(self, loop: SimLoop) -> None:
        self.voters = {name: Voter(loop, name, self) for name in VOTERS}

    def send(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self.voters[message.target].quorum.receive, message)

    async def leader(self) -> Voter:
        for voter in self.voters.values():
            await voter.start()
        found = self.voters[await self.voters["n1"].quorum.until_led()]
        await found.quorum.until_settled()
        return found


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_snapshot_that_cannot_be_saved_is_tried_again_later(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is longer until then, and nothing else."""
    monkeypatch.setattr(quorum_module, "_SNAPSHOT_ENTRY_COUNT", 4)

    async def scenario(loop: SimLoop) -> None:
        leader = await Pair(loop).leader()
        assert leader.quorum.applied_index == 1
        await leader.quorum.propose(b"a")
        await leader.quorum.propose(b"b")
        assert leader.machine.snapshot_count == 0
        leader.disk.fail_next("rename", error=error)  # of entries nothing is renamed
        await leader.quorum.propose(b"c")
        await leader.quorum.propose(b"d")
        assert not leader.has_ended
        assert (leader.machine.snapshot_count, leader.snapshots) == (1, [])
        await asyncio.sleep(PAUSE_S / 2)
        assert await leader.quorum.propose(b"e") == 6
        assert leader.machine.snapshot_count == 1  # each attempt costs as much as there is
        await asyncio.sleep(PAUSE_S)
        assert not leader.has_ended
        assert (leader.machine.snapshot_count, len(leader.snapshots)) == (2, 1)
        assert leader.snapshots[0].endswith(f"{6:020d}.snapshot")
        assert await leader.quorum.propose(b"f") == 7
        assert leader.machine.applied == [b"a", b"b", b"c", b"d", b"e", b"f"]

    run(scenario, seed=1)


def test_after_a_failed_fsync_a_voter_knows_what_was_durable_before_and_nothing_else() -> None:
    async def scenario(loop: SimLoop) -> None:
        leader = await Pair(loop).leader()
        await leader.quorum.propose(b"durable")
        leader.disk.fail_next("sync")
        with pytest.raises(StorageError, match="could not be written to disk"):
            await leader.quorum.propose(b"who knows")
        await asyncio.sleep(0.1)
        assert leader.quorum.raft.last_index == 2
        assert not leader.quorum.raft.is_leader
        assert not leader.has_ended

    run(scenario, seed=1)


def test_a_voter_whose_state_cannot_be_saved_either_waits_until_it_can() -> None:
    """It is as silent as one that is dead: nothing may be said before it is known what is on disk."""

    async def scenario(loop: SimLoop) -> None:
        leader = await Pair(loop).leader()
        await leader.quorum.propose(b"durable")
        before = leader.quorum.raft
        leader.disk.fail_next("sync")
        for _ in range(3):
            leader.disk.fail_next("rename")
        with pytest.raises(StorageError, match="could not be written to disk"):
            await leader.quorum.propose(b"who knows")
        await asyncio.sleep(1.5)
        assert leader.quorum.raft is before  # it has not begun again
        await asyncio.sleep(2.0)
        assert leader.quorum.raft is not before
        assert leader.quorum.raft.last_index == 2
        assert not leader.has_ended

    run(scenario, seed=1)
