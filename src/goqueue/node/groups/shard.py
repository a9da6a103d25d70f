"""A shard of groups over the log that owns it.

The shard is asked, its events are written and applied without an await in between: that is all the locking there is.
Answers go out when everything written so far is durable, so nobody hears of what a crash could take back. A member's
command changes the shard before it is written; if that write fails, the shard is read from its log again and everybody
who waits is sent away to try again.

When another node takes over the log, everybody who waits is sent there, and nothing is written or answered here any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from goqueue.core.group.commands import (
    Command,
    CommitInTransaction,
    CommitOffsets,
    CompleteTransaction,
    ConfigureGroup,
    DeleteGroup,
    DeleteOffsets,
    FetchOffsets,
    ForgetPartitions,
    ForgetTopic,
    Heartbeat,
    Reply,
)
from goqueue.core.group.events import Event
from goqueue.core.group.outcome import Answer, Outcome, Ticket
from goqueue.core.group.shard import GroupShard
from goqueue.core.group.share_events import ShareGroupForgotten, ShareHeartbeat
from goqueue.model.cluster_errors import CoordinationUnknown, NotCoordinator
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.groups.metrics import GroupMetrics
from goqueue.node.state_log import StateLog, coordinating

logger = logging.getLogger(__name__)
_NAME = "group coordinator"
_PAUSE_MS_MIN = 1_000  # between attempts to write what a deadline brought
_PAUSE_MS_MAX = 60_000
_NEVER_WRITES: Final = (FetchOffsets, Heartbeat)  # so a full disk does not stop them
_CHANGES_NOTHING_ITSELF: Final = (  # only its events do
    CommitOffsets,
    CommitInTransaction,
    CompleteTransaction,
    DeleteOffsets,
    DeleteGroup,
    ForgetTopic,
    ForgetPartitions,
    ConfigureGroup,
    ShareHeartbeat,  # and a session, which may well begin anew
)


Admit = Callable[[], Awaitable[None]]


class OwnedGroups:
    def __init__(
        self,
        log: StateLog[Event],
        new_state: Callable[[], GroupShard],
        clock: Clock,
        metrics: GroupMetrics,
        spawn: Spawn,
        on_change: Callable[[OwnedGroups], None],
        on_events: Callable[[Sequence[Event], bool], None],
    ) -> None:
        """`on_events` hears what has happened, and whether it was time that brought it."""
        self.state = new_state()
        self._log = log
        self._new_state = new_state
        self._clock = clock
        self._metrics = metrics
        self._spawn = spawn
        self._on_change = on_change
        self._on_events = on_events
        self._loading = asyncio.Lock()
        self._is_lost = True  # until it was read from the log
        self._ended: GoQueueError | None = None  # why, once it is another's
        self.deleted: set[str] = set()  # share groups, whose positions may still be there
        self._pause_ms = _PAUSE_MS_MIN
        self._paused_until_ms = 0
        self._parked: dict[Ticket, asyncio.Future[Reply]] = {}
        self._ticket_count = 0

    async def load(self) -> None:
        """The first thing to do where this node has begun to lead the log: what it holds is committed from then on."""
        with coordinating(_NAME):
            await self._log.lead()
        await self.ready()
        await self.settled(gives_up=False)

    def end(self, error: GoQueueError) -> None:
        """Another node leads the log. What is in memory and not committed was told to nobody, and never will be."""
        self._ended = error
        self._refuse_parked(error)

    async def ready(self) -> None:
        """The state is that of the log."""
        self._refuse_if_ended()
        if self._is_lost:
            with coordinating(_NAME):
                await self._load()

    async def _load(self) -> None:
        async with self._loading:
            if self._is_lost:
                state = self._new_state()
                deleted: set[str] = set()

                def replay(event: Event) -> None:
                    state.apply(event)
                    if isinstance(event, ShareGroupForgotten):
                        deleted.add(event.group_id)

                await self._log.replay(replay)
                self._refuse_if_ended()
                state.resume(self._clock.now_ms())
                self.state = state
                self.deleted = {group_id for group_id in deleted if group_id not in state.shares}
                self._is_lost = False

    def current(self) -> GroupShard:
        """Its state as it is at this moment, for who cannot wait."""
        self._refuse_if_ended()
        if self._is_lost:
            raise CoordinatorNotAvailable("the group's shard is being read from its log; try again")
        return self.state

    async def settled(self, *, gives_up: bool = True) -> None:
        """Until everything that was written is durable. Who `gives_up` is sent to another node where this one is cut off."""
        with coordinating(_NAME):
            await self._log.settled(gives_up=gives_up)
        self._refuse_if_ended()

    def _refuse_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def ask(self, command: Command, admit: Admit | None = None) -> Reply:
        """The answer, maybe after a rebalance. Who is cancelled meanwhile has gone. `admit` is asked last, and what it says still
        holds when the command is handled; where it raises, that never happens."""
        if not isinstance(command, _NEVER_WRITES):
            with coordinating(_NAME):
                await self._log.lead()
        await self.ready()
        while admit is not None:
            await admit()
            if not self._is_lost:
                break
            await self.ready()
        self._ticket_count += 1
        ticket = Ticket(self._ticket_count)
        outcome = self.state.handle(command, ticket, self._clock.now_ms())
        self._write(outcome, may_stay=isinstance(command, _CHANGES_NOTHING_ITSELF))
        others: list[Answer] = []
        own: Reply | GoQueueError | None = None
        for answered, answer in outcome.replies:
            if answered == ticket:
                own = answer
            else:
                others.append((answered, answer))
        self._deliver_later(others)
        self._on_change(self)  # before it waits: its own deadline may be the next
        if own is None:
            return await self._park(ticket)
        await self._answerable(has_written=bool(outcome.events))
        if isinstance(own, GoQueueError):
            raise own
        return own

    async def _answerable(self, *, has_written: bool) -> None:
        try:
            await self.settled()
        except NotCoordinator as error:
            if has_written:
                raise CoordinationUnknown(
                    f"{error.sentence}; whether what was asked for has happened is not known", **error.details
                ) from error
            raise

    async def _park(self, ticket: Ticket) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        self._metrics.parked.inc()
        try:
            return await future
        finally:
            self._metrics.parked.dec()
            self._parked.pop(ticket, None)
            self.state.abandon(ticket)  # if it still waits there: the client has gone

    def next_tick_ms(self) -> int | None:
        if self._ended is not None:
            return None
        at_ms = self._paused_until_ms if self._is_lost else self.state.next_tick_ms()
        return None if at_ms is None else max(at_ms, self._paused_until_ms)

    async def tick(self, now_ms: int) -> None:
        """What is due; if it cannot be written, again after a pause, ever longer."""
        try:
            with coordinating(_NAME):
                await self._log.lead()
            await self.ready()
            outcome = self.state.tick(now_ms)
            self._write(outcome, may_stay=False, is_due=True)
        except NotCoordinator as error:
            self._ended = self._ended or error
        except GoQueueError as error:
            self._paused_until_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)
            logger.warning("deadlines of groups are not met error=%r", error.sentence)
        else:
            self._pause_ms = _PAUSE_MS_MIN
            self._deliver_later(outcome.replies)

    def release(self) -> None:
        """Send everybody away who waits."""
        self._refuse_parked(CoordinatorNotAvailable("the broker stops; join again at the next"))

    def _write(self, outcome: Outcome, *, may_stay: bool, is_due: bool = False) -> None:
        try:
            self._refuse_if_ended()
            with coordinating(_NAME):
                self._log.append(outcome.events)
        except NotCoordinator:  # nobody asks this one again
            raise
        except GoQueueError as error:
            if not may_stay and (outcome.events or outcome.replies):
                self._lose(error)
            raise
        for event in outcome.events:
            self.state.apply(event)
            self._metrics.count(event)
            if isinstance(event, ShareGroupForgotten):
                self.deleted.add(event.group_id)
        if outcome.events:
            self._on_events(outcome.events, is_due)

    def _lose(self, error: GoQueueError) -> None:
        self._is_lost = True
        self._metrics.reloads.inc()
        logger.warning("groups are read from their log again error=%r", error.sentence)
        self._refuse_parked(CoordinatorNotAvailable(error.sentence))

    def _refuse_parked(self, refusal: GoQueueError) -> None:
        parked, self._parked = self._parked, {}
        for future in parked.values():
            if not future.done():
                future.set_exception(refusal)

    def _deliver_later(self, answers: Sequence[Answer]) -> None:
        """By the node's own hand: the call that released them may be cancelled."""
        waiting = [
            (future, answer)
            for ticket, answer in answers
            if (future := self._parked.pop(ticket, None)) is not None
        ]
        if waiting:
            self._spawn(self._deliver(waiting))

    async def _deliver(self, answers: Sequence[tuple[asyncio.Future[Reply], Reply | GoQueueError]]) -> None:
        refusal: GoQueueError | None = None
        try:
            await self.settled()
        except GoQueueError as error:
            refusal = error
        for future, answer in answers:
            if future.done():
                continue
            if refusal is not None:
                future.set_exception(refusal)
            elif isinstance(answer, GoQueueError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
