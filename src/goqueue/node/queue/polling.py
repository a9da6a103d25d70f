"""Giving records to the members of queue groups, and letting them wait for some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from goqueue.core.lease.decisions import VISIBILITY_MS_MAX, Given, lease, settle_missing, trim
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import Window
from goqueue.model.errors import InvalidRequest, InvalidVisibility
from goqueue.model.record import StoredRecord
from goqueue.node.clock import Clock
from goqueue.node.config import QueueConfig
from goqueue.node.guard import Guard, NodeState
from goqueue.node.partition import Parked
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers, Place
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.receipts import Issue, Receipts
from goqueue.node.queue.requests import Delivered
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable


class Policies(Protocol):
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
        self._turns: dict[str, int] = {}  # which partition a group's next poll begins with

    async def poll(self, poll: Poll) -> list[Delivered]:
        self._guard.admit_read()
        self._check(poll)
        deadline = asyncio.get_running_loop().time() + poll.wait_ms / 1_000
        while True:
            ledgers = [await self._ledgers.open(*place) for place in poll.places]
            delivered = await self._deliver(poll, ledgers)
            if delivered or not await self.until_news(poll, ledgers, deadline):
                return delivered

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

    async def _deliver(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> list[Delivered]:
        room = min(poll.limit, self.credit(poll, ledgers))
        delivered: list[Delivered] = []
        touched: list[OwnedLedger] = []
        receipts = await self._receipts()
        for ledger in self._in_turn(poll.group_id, ledgers):
            if room <= len(delivered):
                break
            taken = await self.take(ledger, poll, room - len(delivered))
            if taken.given:
                delivered += self._with_receipts(ledger, taken, receipts)
                touched.append(ledger)
        for ledger in touched:
            await ledger.settled()
        self._metrics.delivered.inc(len(delivered))
        return delivered

    def credit(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> int:
        """How many more the member may have."""
        windows = [ledger.state.find(poll.group_id) for ledger in ledgers]
        held = sum(window.in_flight.get(poll.member_id, 0) for window in windows if window is not None)
        return max(0, self._config.in_flight_count_max - held)

    def _in_turn(self, group_id: str, ledgers: Sequence[OwnedLedger]) -> list[OwnedLedger]:
        turn = self._turns.get(group_id, 0)
        self._turns[group_id] = turn + 1
        first = turn % len(ledgers) if ledgers else 0
        return [*ledgers[first:], *ledgers[:first]]

    async def take(self, ledger: OwnedLedger, poll: Poll, room: int) -> Taken:
        """Lease up to `room` records of one partition; tell nobody before the ledger has settled."""
        window = await ledger.begin(poll.group_id, from_latest=poll.from_latest)
        source = ledger.source
        policy = self._policies.policy(source.topic, source.index, poll.group_id)
        visibility_ms = poll.visibility_ms or self._policies.visibility_ms(source.topic, poll.group_id)
        async with ledger.filling:
            ledger.carry_out(trim(window, source.log.log_start).events)
            await ledger.feed(window).fill(room)
            feed = ledger.feed(window)  # the group may have been sent elsewhere meanwhile
            now_ms = self._clock.now_ms()
            if ledger.state.windows.get(window.number) is not window or not poll.is_wanted():
                return Taken(window, window.incarnation, [], {}, now_ms)
            decision = lease(
                ledger.state,
                window,
                poll.member_id,
                feed.offer(room, keeps_key_order=policy.keeps_key_order),
                limit=room,
                visibility_ms=visibility_ms,
                now_ms=now_ms,
                policy=policy,
            )
            records, incarnation = feed.records(room), window.incarnation
            ledger.carry_out(decision.events)
        self._timer.watch(ledger)
        await ledger.trim()
        records |= await self._again(ledger, window, decision.reply, records)
        given = [one for one in decision.reply if one.offset in records]
        return Taken(window, incarnation, given, records, now_ms + visibility_ms)

    async def _again(
        self, ledger: OwnedLedger, window: Window, given: Sequence[Given], known: dict[int, StoredRecord]
    ) -> dict[int, StoredRecord]:
        """Records that were given before. One that retention or compaction has taken since is done with."""
        wanted = [one.offset for one in given if one.offset not in known]
        if not wanted:
            return {}
        found = await ledger.feed(window).again(wanted)
        missing = [offset for offset in wanted if offset not in found]
        if missing:
            ledger.carry_out(settle_missing(window, missing).events)
        return found

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
        self._guard.admit_parking()
        future: asyncio.Future[None] = loop.create_future()
        parked: list[tuple[OwnedLedger, Parked]] = []
        is_full = self.credit(poll, ledgers) == 0
        at, now_ms = deadline, self._clock.now_ms()
        for ledger in ledgers:
            window = ledger.state.find(poll.group_id)
            if window is None:
                continue
            source = ledger.source
            if not is_full:
                feed = ledger.feed(window)
                if feed.bound > feed.end:  # more has come, or is still to be looked at
                    _wake(future)
                parked.append((ledger, source.park(future, feed.end, committed=True)))
                if (next_ms := window.next_ready_ms()) is not None:
                    at = min(at, loop.time() + max(next_ms - now_ms, 1) / 1_000)
            keeps_key_order = self._policies.policy(source.topic, source.index, poll.group_id).keeps_key_order
            ledger.watch(future, also_finishes=is_full or keeps_key_order)
        timer = loop.call_at(at, _wake, future)
        self._guard.parked_count += 1
        try:
            await future
        finally:
            self._guard.parked_count -= 1
            timer.cancel()
            for ledger, one in parked:
                ledger.source.unpark(one)
            for ledger in ledgers:
                ledger.unwatch(future)
        return self._guard.state is NodeState.READY and poll.is_wanted()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
