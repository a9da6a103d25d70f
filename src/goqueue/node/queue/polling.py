"""Giving records to the members of queue groups, and letting them wait for some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from goqueue.core.lease.decisions import (
    VISIBILITY_MS_MAX,
    Claim,
    Decision,
    Given,
    Nacked,
    lease,
    release,
    settle_missing,
    trim,
)
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import Window
from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidVisibility
from goqueue.model.priority import LANE_COUNT
from goqueue.model.record import StoredRecord
from goqueue.node.clock import Clock
from goqueue.node.config import QueueConfig
from goqueue.node.guard import Guard, NodeState
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers, Place
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.receipts import Issue, Receipts
from goqueue.node.queue.requests import Delivered
from goqueue.node.queue.waiting import Finishing, Waiting, wake
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable

_ROUND_COUNT_MAX: Final = 100  # of looking behind records that wait for others of their key
_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024  # of values: with so many, no other partition is asked
_HUNG_UP: Final = "the client hung up"


class Policies(Protocol):
    async def learn(self, group_id: str) -> None:
        """Before anything of a group is decided: another node may know what the group has set."""

    def knows(self, group_id: str) -> bool:
        """Whether that can be decided at once; if not, somebody is asked."""

    def policy(self, topic: str, partition: int, group_id: str) -> LeasePolicy: ...

    def visibility_ms(self, topic: str, group_id: str) -> int: ...


def _always() -> bool:
    return True


class Poll(Struct, frozen=True):
    group_id: str
    member_id: str
    places: Sequence[Place]
    limit: int
    wait_ms: int = 0
    visibility_ms: int | None = None
    from_latest: bool = False  # where a group begins that has not read a partition yet
    is_wanted: Callable[[], bool] = _always  # whether the member is still there to get something


class Taken(NamedTuple):
    """What a member has got of one partition. It is durable once the ledger has settled."""

    window: Window
    incarnation: int  # the window's when the lease was made: a seek may come before it is durable
    given: list[Given]
    records: dict[int, StoredRecord]
    deadline_ms: int

    @property
    def size_bytes(self) -> int:
        return sum([len(self.records[one.offset].value or ()) for one in self.given])


class Polling:
    def __init__(
        self,
        config: QueueConfig,
        ledgers: Ledgers,
        table: TopicTable,
        guard: Guard,
        metrics: QueueMetrics,
        clock: Clock,
        receipts: Callable[[], Awaitable[Receipts]],
        policies: Policies,
        timer: ShardTimer[OwnedLedger],
        follow_up: Callable[[OwnedLedger, Decision[list[Nacked | GoQueueError]]], None],
    ) -> None:
        self._config = config
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._receipts = receipts
        self._policies = policies
        self._timer = timer
        self._follow_up = follow_up
        self._turns: dict[str, int] = {}  # which partition a group's next poll begins with

    async def poll(self, poll: Poll) -> list[Delivered]:
        self._guard.admit_read()
        self._check(poll)
        deadline = asyncio.get_running_loop().time() + poll.wait_ms / 1_000
        ledgers: list[OwnedLedger] = []
        try:
            while True:
                ledgers = [await self._ledgers.open(*place) for place in poll.places]
                await self._begin(poll, ledgers)
                delivered = await self._deliver(poll, ledgers)
                if delivered or not await self.until_news(poll, ledgers, deadline):
                    return delivered
        finally:
            self.pass_on(poll, ledgers)

    def pass_on(self, poll: Poll, ledgers: Iterable[OwnedLedger]) -> None:
        """Whoever has waited does this when it has taken what it wants, or goes away: see `Waiting`."""
        for ledger in ledgers:
            ledger.look_again(poll.group_id)

    def _check(self, poll: Poll) -> None:
        if not 1 <= poll.limit <= self._config.poll_count_max:
            raise InvalidRequest(
                f"limit is {poll.limit}; it must be 1 to {self._config.poll_count_max}", limit=poll.limit
            )
        if not 0 <= poll.wait_ms <= self._guard.limits.wait_ms_max:
            raise InvalidRequest(
                f"timeout is {poll.wait_ms} ms; it must be 0 to {self._guard.limits.wait_ms_max}",
                timeout_ms=poll.wait_ms,
            )
        if poll.visibility_ms is not None and not 0 < poll.visibility_ms <= VISIBILITY_MS_MAX:
            raise InvalidVisibility(poll.visibility_ms, VISIBILITY_MS_MAX, visibility_ms_min=1)

    async def _begin(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> None:
        """A group that begins at the end begins everywhere now, whether there is room for more or not: later it would skip
        what came since."""
        for ledger in ledgers:
            if poll.from_latest and ledger.state.find(poll.group_id) is None and poll.is_wanted():
                with suppress(GoQueueError):  # who takes from it will be told
                    await ledger.begin(poll.group_id, from_latest=True)

    async def _deliver(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> list[Delivered]:
        """From one partition after the other. If some fail, what the others have is given all the same: it is leased."""
        receipts = await self._receipts()
        got: list[tuple[OwnedLedger, Taken]] = []
        delivered: list[Delivered] = []
        room, size_bytes, failure = poll.limit, 0, None
        try:
            for ledger in self._in_turn(poll.group_id, ledgers):
                if not room or size_bytes >= _ANSWER_BYTES_MAX:
                    break
                try:
                    taken = await self.take(ledger, poll, room)
                except GoQueueError as error:
                    failure = error
                    continue
                if taken is not None and taken.given:
                    got.append((ledger, taken))
                    room -= len(taken.given)
                    size_bytes += taken.size_bytes
            self.pass_on(poll, ledgers)
            for ledger, taken in got:
                try:
                    await ledger.settled(gives_up=True)
                except GoQueueError as error:
                    failure = error
                    continue
                delivered += self._with_receipts(ledger, taken, receipts)
        except asyncio.CancelledError:
            self._give_back(poll, got)
            raise
        if failure is not None and not delivered:
            raise failure
        self._metrics.delivered.inc(len(delivered))
        return delivered

    def _give_back(self, poll: Poll, got: Sequence[tuple[OwnedLedger, Taken]]) -> None:
        """The client has hung up before it was told: others may have what it got."""
        for ledger, taken in got:
            claims = [Claim(one.offset, one.deliveries) for one in taken.given]
            source = ledger.source
            with suppress(GoQueueError):  # else it comes back when its time is up
                policy = self._policies.policy(source.topic, source.index, poll.group_id)
                decision = release(
                    ledger.state,
                    taken.window,
                    claims,
                    policy=policy,
                    now_ms=self._clock.now_ms(),
                    delay_ms=0,
                    reason=_HUNG_UP,
                )
                ledger.carry_out(decision.events)
                self._follow_up(ledger, decision)

    def credit(self, poll: Poll) -> int:
        """How many more the member may have, whatever it holds them of."""
        held = sum(window.in_flight.get(poll.member_id, 0) for _, window in self._windows(poll.group_id))
        return max(0, self._config.in_flight_count_max - held)

    def _windows(self, group_id: str) -> Iterator[tuple[OwnedLedger, Window]]:
        for ledger in self._ledgers.all():
            window = ledger.state.find(group_id)
            if window is not None:
                yield ledger, window

    def _in_turn(self, group_id: str, ledgers: Sequence[OwnedLedger]) -> list[OwnedLedger]:
        turn = self._turns.get(group_id, 0)
        self._turns[group_id] = turn + 1
        first = turn % len(ledgers) if ledgers else 0
        return [*ledgers[first:], *ledgers[:first]]

    def forget(self, group_id: str) -> None:
        """It is deleted."""
        self._turns.pop(group_id, None)

    async def take(self, ledger: OwnedLedger, poll: Poll, room: int) -> Taken | None:
        """Lease up to `room` records of one partition; tell nobody before the ledger has settled. None if the group or the
        member is gone."""
        await self._policies.learn(poll.group_id)
        await ledger.trim()
        if ledger.state.find(poll.group_id) is None and not poll.is_wanted():
            return None
        window = await ledger.begin(poll.group_id, from_latest=poll.from_latest)
        await ledger.feed(window).until_durable()  # together with others: one sync serves all of them
        async with ledger.filling:
            for _ in range(_ROUND_COUNT_MAX):
                taken, is_more = await self._take(ledger, window, poll, room)
                if taken is None or taken.given or not is_more:
                    break
                await asyncio.sleep(0)
        return taken

    async def _take(
        self, ledger: OwnedLedger, window: Window, poll: Poll, room: int
    ) -> tuple[Taken | None, bool]:
        """And whether there may be something where there was nothing: behind records that wait for others of their key."""
        source = ledger.source
        policy = self._policies.policy(source.topic, source.index, poll.group_id)
        visibility_ms = poll.visibility_ms or self._policies.visibility_ms(source.topic, poll.group_id)
        ledger.carry_out(trim(window, source.log.log_start).events)
        await ledger.feed(window).fill(room)
        known = await self._again(ledger, window, room)
        if ledger.state.windows.get(window.number) is not window or not poll.is_wanted():
            return None, False
        feed = ledger.feed(window)  # the group may have been sent elsewhere meanwhile
        now_ms = self._clock.now_ms()
        room = min(room, self.credit(poll))
        if not room:
            return Taken(window, window.incarnation, [], {}, now_ms), False
        decision = lease(
            ledger.state,
            window,
            poll.member_id,
            feed.offer(room, keeps_key_order=policy.keeps_key_order),
            limit=room,
            visibility_ms=visibility_ms,
            now_ms=now_ms,
            policy=policy,
            readable=known,
        )
        taken = Taken(
            window, window.incarnation, decision.reply, feed.records(room) | known, now_ms + visibility_ms
        )
        ledger.carry_out(decision.events)
        self._timer.watch(ledger)
        return taken, bool(decision.events)

    async def _again(self, ledger: OwnedLedger, window: Window, room: int) -> dict[int, StoredRecord]:
        """Records that have come back, of each lane some. One that is not in the log any more is done with."""
        known: dict[int, StoredRecord] = {}
        now_ms = self._clock.now_ms()
        for lane in range(LANE_COUNT):
            wanted = window.ready(lane, now_ms, room)
            if wanted:
                found, missing = await ledger.feed(window).again(wanted)
                known |= found
                ledger.carry_out(settle_missing(window, missing).events)
        return known

    def _with_receipts(self, ledger: OwnedLedger, taken: Taken, receipts: Receipts) -> list[Delivered]:
        topic, partition = ledger.source.topic, ledger.source.index
        records, deadline_ms = taken.records, taken.deadline_ms
        topic_id = self._table.get(topic).facts.id
        issuer = receipts.issuer(topic_id, Issue(topic, partition, taken.window.number, taken.incarnation))
        texts = issuer.make([(one.offset, one.deliveries) for one in taken.given])
        return [
            Delivered(topic, partition, records[one.offset], one.lane, one.deliveries, deadline_ms, receipt)
            for one, receipt in zip(taken.given, texts, strict=True)
        ]

    async def until_news(self, poll: Poll, ledgers: Sequence[OwnedLedger], deadline: float) -> bool:
        """Until there may be something to give; False when the time is up, or the node or the member goes away."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline or self._guard.state is not NodeState.READY:
            return False
        if any(ledger.tenure.is_over for ledger in ledgers):
            return True  # nothing comes there any more, which is said where it is looked for
        self._guard.admit_parking()
        future: asyncio.Future[None] = loop.create_future()
        if self.credit(poll) == 0:  # it waits for anything to be finished, wherever that is
            lines: list[Finishing | Waiting] = [
                ledger.finishing for ledger, _ in self._windows(poll.group_id)
            ]
        else:
            found = [(ledger, ledger.state.find(poll.group_id)) for ledger in ledgers]
            lines = [ledger.waiting(window) for ledger, window in found if window is not None]
        timer = loop.call_at(deadline, wake, future)
        self._guard.parked_count += 1
        try:
            for line in lines:
                line.add(future)
            await future
        finally:
            self._guard.parked_count -= 1
            timer.cancel()
            for line in lines:
                line.discard(future)
        return self._guard.state is NodeState.READY and poll.is_wanted()
