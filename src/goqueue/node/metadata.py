"""The catalogue over its log, `__cluster_metadata`, which a quorum of nodes keeps; a node alone is a quorum of one.

Whoever wants a change calls `execute`. On the controller the command is decided, its events are committed by the quorum,
then applied, then answered; commands take turns, and each waits for what the one before has left on its way, so each decides on what
is committed. On any other node it is handed to
the controller, and answered when its events have arrived here as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from goqueue.core.catalog import Catalog, Command, Event, decode_events, encode_events
from goqueue.core.cluster.commands import AddVoter, CreateTopic, Order, RemoveNode, RemoveVoter
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.core.cluster.voter_rules import check_all_joined
from goqueue.model.cluster_errors import (
    LevelTooLow,
    NotController,
    PeerUnreachable,
    VotersRefused,
)
from goqueue.model.errors import InvariantViolation, TimedOut
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings
from goqueue.node.clock import Clock
from goqueue.node.cluster.ports import Done, PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.voter_changes import change_voters
from goqueue.node.monotonic import monotonic_ms

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.05  # before a controller is asked again

Applied = Callable[[Sequence[Event]], None]


class Metadata:
    def __init__(self, limits: Limits, defaults: TopicSettings, clock: Clock, timeout_ms: int) -> None:
        self.catalog = Catalog(limits, defaults)
        self._clock = clock
        self._timeout_s = timeout_ms / 1_000
        self._turn = asyncio.Lock()
        self._quorum: Quorum | None = None
        self._links: PeerLinks | None = None
        self._watchers: list[Applied] = []
        self._when_restored: list[Callable[[], None]] = []

    def attach(self, quorum: Quorum, links: PeerLinks | None) -> None:
        self._quorum, self._links = quorum, links

    @property
    def quorum(self) -> Quorum:
        if self._quorum is None:
            raise InvariantViolation("the metadata is used before it was attached")
        return self._quorum

    def when_applied(self, watcher: Applied) -> None:
        """It is called with all events as they are applied; it may not wait."""
        self._watchers.append(watcher)

    def when_restored(self, watcher: Callable[[], None]) -> None:
        """It is called when the catalogue was replaced as a whole."""
        self._when_restored.append(watcher)

    # ---------------------------------------------------------------- the state machine of the quorum

    def apply(self, index: int, payload: bytes) -> None:
        try:
            events = decode_events(payload)
        except msgspec.DecodeError as error:
            raise _not_understood(f"entry {index}", error) from error
        for event in events:
            self.catalog.apply(event)
        for watcher in self._watchers:
            watcher(events)

    def snapshot(self) -> bytes:
        return self.catalog.snapshot()

    def restore(self, index: int, payload: bytes) -> None:
        try:
            self.catalog.restore(payload)
        except msgspec.DecodeError as error:
            raise _not_understood(f"the snapshot at entry {index}", error) from error
        for watcher in self._when_restored:
            watcher()

    # ---------------------------------------------------------------- changing

    async def execute(self, command: Order) -> list[Event]:
        """The events that came of it, committed and applied here. Call it from `Changes` where what hangs on it must not
        be left half done."""
        if self._links is None:
            return (await self.decide(command)).events
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._execute_anywhere(self._links, command)
        except TimeoutError:
            raise TimedOut(
                f"the cluster has had no controller for {self._timeout_s:g} s, or it does not answer; whether the change "
                "happens is not known"
            ) from None

    async def _execute_anywhere(self, links: PeerLinks, command: Order) -> list[Event]:
        while True:
            try:
                done = await self._execute_once(links, command)
                await self.quorum.until_applied(done.index)
                return done.events
            except NotController as error:  # it was not carried out, so it may be asked for again
                logger.debug("another controller is asked error=%r", error.sentence)
                await asyncio.sleep(_PAUSE_S)

    async def _execute_once(self, links: PeerLinks, command: Order) -> Done:
        if self.quorum.is_active:
            return await self.decide(command)
        leader = await self.quorum.until_led()
        if leader == self.quorum.name:  # it has just won, and does not know everything yet
            raise NotController(leader)
        try:
            return await links.execute(leader, command)
        except PeerUnreachable as error:
            raise TimedOut(f"{error.sentence}; whether the change happens is not known") from error

    async def decide(self, command: Order) -> Done:
        """On the controller. Raises NotController elsewhere: then nothing has happened."""
        asked_ms = monotonic_ms()
        while True:
            try:
                return await self._decide(command, asked_ms)
            except VotersRefused as error:
                is_over = monotonic_ms() - asked_ms > self.quorum.silent_ms_max
                if is_over or not error.details.get("dead"):  # who seems to be may answer the next heartbeat
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def _decide(self, command: Order, asked_ms: int) -> Done:
        quorum = self.quorum
        async with self._turn:
            await quorum.until_settled()
            if not quorum.is_active and not quorum.is_alone:
                raise NotController(None if quorum.leader == quorum.name else quorum.leader)
            self._check_voters(command)
            if isinstance(command, AddVoter | RemoveVoter):
                return Done(await change_voters(quorum, self.catalog, command, asked_ms), [])
            events = self.catalog.decide(command, self._clock.now_ms())
            if not events:
                return Done(quorum.applied_index, [])
            return Done(await quorum.propose(encode_events(events)), events)

    def try_out(self, command: Command) -> list[Event]:
        """As `execute` without doing it: what would come of it as far as this node knows."""
        self._check_voters(command)
        return self.catalog.decide(command, 0)

    def _check_voters(self, command: Order) -> None:
        """What hangs on who votes: the catalogue does not know that."""
        voters = self.quorum.raft.voters
        if isinstance(command, RemoveNode) and command.name in voters:
            raise VotersRefused(
                f"node {command.name!r} votes; remove it from the voters first", node=command.name
            )
        if isinstance(command, CreateTopic) and command.is_placed_as_usual and not self.quorum.is_alone:
            check_all_joined(voters, [node.name for node in self.catalog.nodes()])


def _not_understood(what: str, error: msgspec.DecodeError) -> LevelTooLow:
    """Whoever went on without it would have another catalogue than all others."""
    return LevelTooLow(
        f"{what} of the metadata log is not understood ({error}): a newer version has written it; this version knows feature level "
        f"{LEVEL_NEWEST}; start this node with the version of the others",
        level=LEVEL_NEWEST,
    )
