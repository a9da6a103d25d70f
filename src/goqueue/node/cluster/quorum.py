"""The shell around Raft: gives it messages and time, makes durable what it wants durable, sends what it wants sent, and hands
what is committed to the state machine. One task does all of it, one step after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import EntryKind, Message
from goqueue.core.raft.raft import InvalidVoters, NotLeading, Overloaded, Raft, Ready, Restored
from goqueue.model.cluster_errors import NotController, VotersRefused
from goqueue.model.errors import GoQueueError, InvariantViolation, NotReady, StorageError, TimedOut
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.commit import Spawn
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.shared_round import SharedRound

logger = logging.getLogger(__name__)
_SNAPSHOT_ENTRY_COUNT: Final = 10_000
_SNAPSHOT_BYTES: Final = (
    32 * 1024 * 1024
)  # of entries; they are in memory, and a node with many partitions makes large ones
_PAUSE_S: Final = 1.0  # after a failure of the disk
_SNAPSHOT_PAUSE_MS: Final = 10_000  # likewise: each attempt encodes the whole catalogue

Chance = Callable[[int], int]
Send = Callable[[Message], None]


class StateMachine(Protocol):
    def apply(self, index: int, payload: bytes) -> None: ...

    def snapshot(self) -> bytes: ...

    def restore(self, index: int, payload: bytes) -> None: ...


class Quorum:
    def __init__(
        self,
        config: RaftConfig,
        log: QuorumLog,
        machine: StateMachine,
        send: Send,
        chance: Chance,
        spawn: Spawn,
        *,
        timeout_ms: int,
    ) -> None:
        self._config = config
        self._log = log
        self._machine = machine
        self._send = send
        self._chance = chance
        self._spawn = spawn
        self._timeout_s = timeout_ms / 1_000
        self._raft: Raft | None = None
        self._voters: tuple[str, ...] = ()
        self._woken = asyncio.Event()
        self._changed = asyncio.Condition()
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}  # by index: term, and who waits
        self._confirmation = SharedRound(self._confirm, spawn)
        self._watchers: list[Callable[[], None]] = []
        self._snapshot_index = 0
        self._snapshot_from_ms = 0  # not before
        self._applied_bytes = 0  # since the last snapshot
        self._snapshot_bytes = 0
        self._seen: tuple[object, ...] = ()
        self.applied_index = 0
        self.won_count = 0  # elections, by this process
        self.last_leader: tuple[str, int] | None = None  # the last other one, and when it was heard of

    async def start(self, voters: Collection[str]) -> None:
        """Read what is on disk and take part. A node alone knows its whole state when this returns."""
        self._voters = tuple(voters)
        restored = await self._log.open(self._voters, may_rejoin=self._voters != (self.name,))
        self._snapshot_index = restored.snapshot.index if restored.snapshot else 0
        self._raft = Raft(self._config, restored, now_ms=monotonic_ms(), chance=self._chance)
        await self._work()
        self._spawn(self._run())

    @property
    def raft(self) -> Raft:
        if self._raft is None:
            raise InvariantViolation("the quorum is used before it was started")
        return self._raft

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def is_alone(self) -> bool:
        return self.raft.voters == (self._config.name,)

    @property
    def leader(self) -> str | None:
        """None also before the start."""
        return None if self._raft is None else self._raft.leader

    @property
    def is_active(self) -> bool:
        """This node is the controller, and knows everything that its predecessors have decided: so it stays until it is not the
        leader any more, whatever it is deciding itself."""
        first_index = self.raft.first_index
        return first_index is not None and self.applied_index >= first_index

    def when_changed(self, watcher: Callable[[], None]) -> None:
        """It is called after a change of leader, term or role; it may not wait."""
        self._watchers.append(watcher)

    def receive(self, message: Message) -> None:
        if self._raft is not None:
            self._raft.step(message, monotonic_ms())
            if message.source == self._raft.leader:
                self.last_leader = (message.source, monotonic_ms())
            self._woken.set()

    def set_observers(self, names: Collection[str]) -> None:
        self.raft.set_observers(names)

    @property
    def silent_ms_max(self) -> int:
        """Who has not been heard of for longer counts as dead."""
        return self._config.election_ms_min

    def transfer(self, target: str) -> None:
        self.raft.transfer(target, monotonic_ms())
        self._woken.set()

    async def hand_over(self) -> None:
        """To the voter that was heard of last, if one can lead; back when another does. The caller has a limit to its patience."""
        raft = self.raft
        others = sorted(
            (standing.silent_ms, name)
            for name, standing in raft.standings(monotonic_ms()).items()
            if name in raft.voters and standing.silent_ms is not None and not standing.is_recovering
        )
        if others:
            self.transfer(others[0][1])
            async with self._changed:
                await self._changed.wait_for(lambda: self.raft.leader not in (None, self.name))

    async def propose(self, payload: bytes) -> int:
        """The index, once it is committed and applied here. NotController: it was not and never will be. TimedOut: who
        knows."""
        if self.is_alone and not self.raft.is_active:
            await self._take_office()
        return await self._committed(lambda: self.raft.propose(payload, monotonic_ms()))

    async def change_voters(self, voters: Sequence[str]) -> int:
        """One more, or one less; like `propose`."""
        return await self._committed(lambda: self.raft.change_voters(voters, monotonic_ms()))

    async def _committed(self, propose: Callable[[], int]) -> int:
        try:
            index = propose()
        except NotLeading as refusal:
            raise NotController(refusal.leader) from None
        except Overloaded as refusal:
            raise NotReady(f"the quorum is behind: {refusal}; try again later") from None
        except InvalidVoters as refusal:
            raise VotersRefused(str(refusal)) from None
        self._woken.set()
        await self._until_committed(index, self.raft.term)
        return index

    async def _take_office(self) -> None:
        """Alone, and not before there is something to write: a node must come up on a full disk, to be read."""
        self.raft.campaign(monotonic_ms())
        self._woken.set()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self.raft.last_index] = (
            self.raft.term,
            future,
        )  # for the entry that a leader begins with
        await future

    async def _until_committed(self, index: int, term: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[index] = (term, future)
        try:
            # Alone there is only the disk to wait for, and what was begun is carried to its end.
            async with asyncio.timeout(None if self.is_alone else self._timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(
                f"the quorum did not confirm a change within {self._timeout_s:g} s; whether it happens is not known"
            ) from None
        finally:
            if self._waiting.get(index, (0, None))[1] is future:
                del self._waiting[index]

    async def confirmed_index(self) -> int:
        """Of the last entry that was committed by anybody before this was called. NotController where this node is not the one to
        know, TimedOut where a majority does not say that it is."""
        return await self._confirmation.ask()

    async def _confirm(self) -> int:
        if not self.is_active:
            raise NotController(None if self.leader == self.name else self.leader)
        raft, term, index = self.raft, self.raft.term, self.raft.commit_index
        round = raft.inquire(monotonic_ms())
        self._woken.set()

        def is_over() -> bool:
            return self._raft is not raft or not raft.is_leader or raft.term != term

        try:
            async with asyncio.timeout(self._config.election_ms_max / 1_000), self._changed:
                await self._changed.wait_for(lambda: is_over() or raft.followed_round >= round)
        except TimeoutError:
            raise TimedOut("a majority of the voters has not said that it follows this controller") from None
        if is_over():
            raise NotController(self.leader)
        return index

    # ---------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            self.raft.tick(monotonic_ms())
            await self._work()
            wait_s = max(0, self.raft.next_tick_ms() - monotonic_ms()) / 1_000
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _work(self) -> None:
        while (ready := self.raft.ready()) is not None:
            try:
                await self._log.persist(ready)
            except (GoQueueError, OSError) as error:
                await self._begin_again(error)
                return
            self.raft.advance(ready)
            for message in ready.messages:
                self._send(message)
            self._apply(ready)
            await self._tell()
        # A node alone keeps its whole history: it is small, and whoever copies the folder has all of it.
        if not self.is_alone and self._is_long and monotonic_ms() >= self._snapshot_from_ms:
            try:
                await self._save_snapshot()
            except (GoQueueError, OSError) as error:  # the log is longer for a while, and nothing else
                logger.error("a snapshot of the metadata cannot be saved error=%r", str(error))
                self._snapshot_from_ms = monotonic_ms() + _SNAPSHOT_PAUSE_MS
        await self._tell()

    @property
    def _is_long(self) -> bool:
        """The log is worth a snapshot: by its entries, or by their bytes, which are to be more than those of the snapshot."""
        entry_count = self.applied_index - self._snapshot_index
        bytes_max = max(_SNAPSHOT_BYTES, 2 * self._snapshot_bytes)
        return entry_count >= _SNAPSHOT_ENTRY_COUNT or self._applied_bytes >= bytes_max

    async def _begin_again(self, error: GoQueueError | OSError) -> None:
        """What Raft wants on disk could not be written. As after a crash it goes on with what is there; of the rest nobody has
        heard. Whoever waits is told: nothing was written."""
        logger.error("the metadata log cannot be written error=%r", str(error))
        refusal = error if isinstance(error, GoQueueError) else StorageError(str(error))
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(refusal)
        restored = await self._reloaded()
        self._raft = Raft(self._config, restored, now_ms=monotonic_ms(), chance=self._chance)
        if not self.is_alone:
            await asyncio.sleep(_PAUSE_S)

    async def _reloaded(self) -> Restored:
        """However long it takes: nothing may be said before it is known what is on disk."""
        while True:
            try:
                return await self._log.reload(self._voters)
            except OSError as error:
                logger.error("the state of the quorum cannot be saved error=%r", str(error))
                await asyncio.sleep(_PAUSE_S)

    def _apply(self, ready: Ready) -> None:
        if ready.restored is not None and ready.restored.index > self.applied_index:
            self._machine.restore(ready.restored.index, ready.restored.payload)
            self.applied_index = self._snapshot_index = ready.restored.index
            self._applied_bytes, self._snapshot_bytes = 0, len(ready.restored.payload)
        for entry in ready.committed:
            if entry.index <= self.applied_index:  # before it began again
                continue
            if entry.kind is EntryKind.COMMAND:
                self._machine.apply(entry.index, entry.payload)
                self._applied_bytes += len(entry.payload)
            self.applied_index = entry.index
            term, future = self._waiting.pop(entry.index, (0, None))
            if future is not None and not future.done():
                if term == entry.term:
                    future.set_result(None)
                else:  # another leader has put something else in its place
                    future.set_exception(NotController(self.raft.leader))

    async def _tell(self) -> None:
        raft = self.raft
        seen = (
            *(raft.term, raft.role, raft.leader, raft.is_active, raft.voters),
            *(self.applied_index, raft.followed_round),
        )
        if seen == self._seen:
            return
        if seen[:4] != self._seen[:4]:
            logger.info("quorum term=%d role=%s leader=%s", raft.term, raft.role.value, raft.leader)
            self.won_count += raft.is_leader and seen[:2] != self._seen[:2]
            for watcher in self._watchers:
                watcher()
        if self._seen and seen[4] != self._seen[4]:
            logger.info("the voters are others now voters=%s", ",".join(raft.voters))
        self._seen = seen
        if not raft.is_leader:
            self._give_up_waiting()
        async with self._changed:
            self._changed.notify_all()

    def _give_up_waiting(self) -> None:
        """Another leader may or may not commit what this one has proposed."""
        waiting, self._waiting = self._waiting, {}
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(
                    TimedOut("the quorum is changing its leader; whether the change happens is not known")
                )

    async def until_applied(self, index: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.applied_index >= index)

    async def until_settled(self) -> None:
        """Until this node has applied all that is in its log, or does not lead any more. What was proposed and given up on may still
        be on its way: whoever decides without it decides on what is not so. TimedOut: there is no majority for it."""
        try:
            async with asyncio.timeout(None if self.is_alone else self._timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: not self.raft.is_leader or self.applied_index >= self.raft.last_index
                )
        except TimeoutError:
            raise TimedOut(
                f"the quorum did not confirm an earlier change within {self._timeout_s:g} s; nothing was changed"
            ) from None

    async def until_led(self) -> str:
        """By whom."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.raft.leader is not None)
        return self.raft.leader or ""

    async def _save_snapshot(self) -> None:
        snapshot = self.raft.compact(self.applied_index, self._machine.snapshot())
        await self._log.save_snapshot(snapshot)
        await self._log.forget_before(snapshot)
        self._snapshot_index = snapshot.index
        self._applied_bytes, self._snapshot_bytes = 0, len(snapshot.payload)
