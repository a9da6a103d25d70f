"""The queue: records of a topic are given to the members of a group one by one, and each says what became of it.

Whatever changes who holds what is in the ledger of its partition, durably, before anybody hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from goqueue.core.lease.decisions import (
    Claim,
    Decision,
    Extension,
    Given,
    Nacked,
    close_group,
    extend,
    lease,
    let_go,
    open_group,
    reject,
    release,
    seek,
    settle,
    settle_missing,
    tick,
    trim,
)
from goqueue.core.lease.events import Moving
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import Window
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    InvalidRequest,
    InvalidVisibility,
    LeaseSuperseded,
    ReceiptNotFound,
)
from goqueue.model.record import StoredRecord
from goqueue.node.clock import Clock
from goqueue.node.guard import Guard, NodeState
from goqueue.node.ledger import OwnedLedger
from goqueue.node.ledgers import Ledgers, Place
from goqueue.node.partition import Parked
from goqueue.node.queue_metrics import QueueMetrics
from goqueue.node.queue_requests import Delivered, Finished, Prolonged, QueueStats, Returned
from goqueue.node.receipts import Receipt, Receipts
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable

VISIBILITY_MS_MAX = 12 * 3_600_000
R = TypeVar("R")
A = TypeVar("A")


class QueueConfig(Struct, frozen=True):
    in_flight_count_max: int = 1_000  # of one member; it gets no more until it has finished some
    poll_count_max: int = 1_000


class Policies(Protocol):
    def policy(self, topic: str, partition: int, group_id: str) -> LeasePolicy: ...

    def visibility_ms(self, topic: str, group_id: str) -> int: ...


class Poll(Struct, frozen=True):
    group_id: str
    member_id: str
    places: Sequence[Place]
    limit: int
    wait_ms: int = 0
    visibility_ms: int | None = None
    from_latest: bool = False  # where a group begins that has not read a partition yet


class Queue:
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
        when_moving: Callable[[OwnedLedger], None],
    ) -> None:
        self._config = config
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._receipts = receipts
        self._policies = policies
        self._when_moving = when_moving
        self._turns: dict[str, int] = {}  # which partition a group's next poll begins with
        self.timer = ShardTimer(ledgers.all, self._tick, clock)

    async def start(self) -> None:
        """Go on where the logs end: with what is leased until its time is up, with what is to be moved at once."""
        await self._ledgers.start(self._resume)

    async def _resume(self, ledger: OwnedLedger) -> None:
        if ledger.state.moves:
            self._when_moving(ledger)
        self.timer.watch(ledger)

    # ---------------------------------------------------------------- giving

    async def poll(self, poll: Poll) -> list[Delivered]:
        """Records for a member; it waits for some if there are none. None also where it holds as many as it may."""
        self._guard.admit_read()
        self._check(poll)
        deadline = asyncio.get_running_loop().time() + poll.wait_ms / 1_000
        while True:
            ledgers = [await self._ledgers.open(*place) for place in poll.places]
            delivered = await self._deliver(poll, ledgers)
            if delivered or not await self._until_news(poll, ledgers, deadline):
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
            raise InvalidVisibility(poll.visibility_ms, VISIBILITY_MS_MAX)

    async def _deliver(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> list[Delivered]:
        room = min(poll.limit, self._credit(poll, ledgers))
        delivered: list[Delivered] = []
        touched: list[OwnedLedger] = []
        receipts = await self._receipts()
        for ledger in self._in_turn(poll.group_id, ledgers):
            if room <= len(delivered):
                break
            more = await self._give(ledger, poll, room - len(delivered), receipts)
            if more:
                delivered += more
                touched.append(ledger)
        for ledger in touched:
            await ledger.settled()
        self._metrics.delivered.inc(len(delivered))
        return delivered

    def _credit(self, poll: Poll, ledgers: Sequence[OwnedLedger]) -> int:
        windows = [ledger.state.find(poll.group_id) for ledger in ledgers]
        held = sum(window.in_flight.get(poll.member_id, 0) for window in windows if window is not None)
        return max(0, self._config.in_flight_count_max - held)

    def _in_turn(self, group_id: str, ledgers: Sequence[OwnedLedger]) -> list[OwnedLedger]:
        turn = self._turns.get(group_id, 0)
        self._turns[group_id] = turn + 1
        first = turn % len(ledgers) if ledgers else 0
        return [*ledgers[first:], *ledgers[:first]]

    async def _give(self, ledger: OwnedLedger, poll: Poll, room: int, receipts: Receipts) -> list[Delivered]:
        await ledger.ready()
        source = ledger.source
        window = self._window(ledger, poll.group_id, poll.from_latest)
        policy = self._policies.policy(source.topic, source.index, poll.group_id)
        visibility_ms = poll.visibility_ms or self._policies.visibility_ms(source.topic, poll.group_id)
        async with ledger.filling:
            self._trim(ledger, window)
            await ledger.feed(window).fill(room)
            feed = ledger.feed(window)  # the group may have been sent elsewhere meanwhile
            if ledger.state.windows.get(window.number) is not window:
                return []
            now_ms = self._clock.now_ms()
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
            records = feed.records(room)
            ledger.carry_out(decision.events)
        self.timer.watch(ledger)
        await ledger.trim()
        records |= await self._again(ledger, window, decision.reply, records)
        return [
            Delivered(
                source.topic,
                source.index,
                records[given.offset],
                given.lane,
                given.deliveries,
                now_ms + visibility_ms,
                self._receipt(ledger, window, given, receipts),
            )
            for given in decision.reply
            if given.offset in records
        ]

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

    def _receipt(self, ledger: OwnedLedger, window: Window, given: Given, receipts: Receipts) -> str:
        source = ledger.source
        receipt = Receipt(
            source.topic, source.index, given.offset, given.deliveries, window.number, window.incarnation
        )
        return receipts.make(self._table.get(source.topic).facts.id, receipt)

    def _window(self, ledger: OwnedLedger, group_id: str, from_latest: bool) -> Window:
        """Of a group; its first look at the partition is an event, too."""
        window = ledger.state.find(group_id)
        if window is None:
            log = ledger.source.log
            start = ledger.source.last_stable_offset if from_latest else log.log_start
            ledger.carry_out(open_group(ledger.state, group_id, start).events)
            window = ledger.state.windows[ledger.state.numbers[group_id]]
        return window

    def _trim(self, ledger: OwnedLedger, window: Window) -> None:
        ledger.carry_out(trim(window, ledger.source.log.log_start).events)

    async def _until_news(self, poll: Poll, ledgers: Sequence[OwnedLedger], deadline: float) -> bool:
        """Until there may be something to give; False when the time is up or the node goes away."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline or self._guard.state is not NodeState.READY or not ledgers:
            return False
        self._guard.admit_parking()
        future: asyncio.Future[None] = loop.create_future()
        is_full = self._credit(poll, ledgers) == 0
        parked: list[tuple[OwnedLedger, Parked]] = []
        at = deadline
        now_ms = self._clock.now_ms()
        for ledger in ledgers:
            window = ledger.state.find(poll.group_id)
            if window is None:
                continue
            if not is_full:
                parked.append((ledger, ledger.source.park(future, ledger.feed(window).end, committed=True)))
                if (next_ms := window.next_ms()) is not None:
                    at = min(at, loop.time() + max(next_ms - now_ms, 0) / 1_000)
            policy = self._policies.policy(ledger.source.topic, ledger.source.index, poll.group_id)
            ledger.watch(future, also_finishes=is_full or policy.keeps_key_order)
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
        return self._guard.state is NodeState.READY

    # ---------------------------------------------------------------- finishing

    async def ack(self, receipts: Sequence[str]) -> list[Finished | GoQueueError]:
        def decide(
            ledger: OwnedLedger, window: Window, claims: list[Claim]
        ) -> Decision[list[GoQueueError | None]]:
            cursors = ledger.feed(window).ends()
            return settle(window, claims, now_ms=self._clock.now_ms(), cursors=cursors)

        answers = await self._each(receipts, decide, _finished)
        self._metrics.count("acked", answers)
        return answers

    async def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, reason: str = ""
    ) -> list[Returned | GoQueueError]:
        if delay_ms is not None and not 0 <= delay_ms <= VISIBILITY_MS_MAX:
            raise InvalidRequest(
                f"delay is {delay_ms} ms; it must be 0 to {VISIBILITY_MS_MAX}", delay_ms=delay_ms
            )

        def decide(
            ledger: OwnedLedger, window: Window, claims: list[Claim]
        ) -> Decision[list[Nacked | GoQueueError]]:
            return release(
                ledger.state,
                window,
                claims,
                policy=self._policy(ledger, window),
                now_ms=self._clock.now_ms(),
                delay_ms=delay_ms,
                reason=reason,
            )

        answers = await self._each(receipts, decide, _returned)
        self._metrics.count("nacked", answers)
        return answers

    async def reject(self, receipts: Sequence[str], *, reason: str) -> list[Finished | GoQueueError]:
        def decide(
            ledger: OwnedLedger, window: Window, claims: list[Claim]
        ) -> Decision[list[GoQueueError | None]]:
            return reject(
                ledger.state,
                window,
                claims,
                policy=self._policy(ledger, window),
                now_ms=self._clock.now_ms(),
                reason=reason,
            )

        answers = await self._each(receipts, decide, _finished)
        self._metrics.count("rejected", answers)
        return answers

    async def extend(
        self, receipts: Sequence[str], *, timeout_ms: int, is_added: bool = False
    ) -> list[Prolonged | GoQueueError]:
        def decide(
            ledger: OwnedLedger, window: Window, claims: list[Claim]
        ) -> Decision[list[Extension | GoQueueError]]:
            return extend(
                ledger.state,
                window,
                claims,
                now_ms=self._clock.now_ms(),
                timeout_ms=timeout_ms,
                is_added=is_added,
            )

        answers = await self._each(receipts, decide, _prolonged)
        self._metrics.count("extended", answers)
        return answers

    async def _each(
        self,
        texts: Sequence[str],
        decide: Callable[[OwnedLedger, Window, list[Claim]], Decision[list[R]]],
        answer: Callable[[OwnedLedger, Window, Claim, R], A | GoQueueError],
    ) -> list[A | GoQueueError]:
        """What is decided about each receipt, in order; those of one window together."""
        self._guard.admit_read()
        if not 1 <= len(texts) <= self._guard.limits.messages_per_request_max:
            raise InvalidRequest(
                f"a request names 1 to {self._guard.limits.messages_per_request_max} receipts, not {len(texts)}"
            )
        answers: list[A | GoQueueError | None] = [None] * len(texts)
        touched: list[OwnedLedger] = []
        for (ledger, window), claimed in self._sorted_out(texts, await self._receipts(), answers).items():
            claims = [claim for _, claim in claimed]
            try:
                await ledger.ready()
                decision = decide(ledger, window, claims)
                ledger.carry_out(decision.events)
            except GoQueueError as error:
                for at, _ in claimed:
                    answers[at] = error
                continue
            touched.append(ledger)
            self._follow_up(ledger, decision)
            for (at, claim), reply in zip(claimed, decision.reply, strict=True):
                answers[at] = answer(ledger, window, claim, reply)
        for ledger in touched:
            await ledger.settled()
            await ledger.trim()
        return [one for one in answers if one is not None]

    def _sorted_out(
        self, texts: Sequence[str], receipts: Receipts, answers: list[A | GoQueueError | None]
    ) -> dict[tuple[OwnedLedger, Window], list[tuple[int, Claim]]]:
        """By ledger and window; where a receipt is void, its answer says why."""
        groups: dict[tuple[OwnedLedger, Window], list[tuple[int, Claim]]] = {}
        for at, text in enumerate(texts):
            try:
                receipt, proof = receipts.read(text)
                ledger, window = self._issued(receipt, text, proof, receipts)
            except GoQueueError as error:
                answers[at] = error
                continue
            groups.setdefault((ledger, window), []).append((at, Claim(receipt.offset, receipt.deliveries)))
        return groups

    def _issued(
        self, receipt: Receipt, text: str, proof: str, receipts: Receipts
    ) -> tuple[OwnedLedger, Window]:
        gone = ReceiptNotFound(f"nothing is known of receipt {text!r} any more", receipt_handle=text)
        try:
            topic = self._table.get(receipt.topic)
            ledger = self._ledgers.known(receipt.topic, receipt.partition)
        except GoQueueError:
            raise gone from None
        receipts.check(topic.facts.id, text, proof)
        window = None if ledger is None else ledger.state.windows.get(receipt.group)
        if ledger is None or window is None:
            raise gone
        if window.incarnation != receipt.incarnation:
            raise LeaseSuperseded(window.group_id, receipt.offset, receipt.deliveries, 0)
        return ledger, window

    def _policy(self, ledger: OwnedLedger, window: Window) -> LeasePolicy:
        return self._policies.policy(ledger.source.topic, ledger.source.index, window.group_id)

    def _follow_up(self, ledger: OwnedLedger, decision: Decision[R]) -> None:
        self.timer.watch(ledger)
        if any(isinstance(event, Moving) for event in decision.events):
            self._when_moving(ledger)

    # ---------------------------------------------------------------- groups

    async def let_go(self, group_id: str, member_id: str) -> None:
        """A member leaves; others may have what it holds."""
        for ledger in self._ledgers.all():
            window = ledger.state.find(group_id)
            if window is not None and window.in_flight.get(member_id):
                await ledger.ready()
                ledger.carry_out(let_go(window, member_id, now_ms=self._clock.now_ms()).events)
                await ledger.settled()

    async def seek(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """The group goes on from there; receipts that it has are void."""
        ledger = await self._ledgers.open(topic, partition)
        await ledger.ready()
        window = self._window(ledger, group_id, False)
        ledger.carry_out(seek(window, offset).events)
        ledger.wake()
        await ledger.settled()

    async def forget(self, group_id: str, topic: str | None = None) -> None:
        """The group is deleted, or its place in one topic."""
        for ledger in self._ledgers.all():
            if (topic is None or ledger.source.topic == topic) and ledger.state.find(group_id) is not None:
                await ledger.ready()
                ledger.carry_out(close_group(ledger.state, group_id).events)
                await ledger.settled()

    def committed(self, group_id: str, topic: str, partition: int) -> int | None:
        """None where the group has not read yet."""
        ledger = self._ledgers.known(topic, partition)
        window = None if ledger is None else ledger.state.find(group_id)
        return None if window is None else window.committed_offset

    def places(self, group_id: str) -> list[Place]:
        """Where the group has read."""
        found = [one.source for one in self._ledgers.all() if one.state.find(group_id) is not None]
        return sorted((source.topic, source.index) for source in found)

    def stats(self, group_id: str | None = None) -> list[QueueStats]:
        found: list[QueueStats] = []
        for ledger in self._ledgers.all():
            for window in ledger.state.windows.values():
                if group_id is None or window.group_id == group_id:
                    found.append(_stats(ledger, window))
        if group_id is not None and not found:
            raise GroupNotFound(f"group {group_id!r} has read nothing as a queue", group=group_id)
        return sorted(found, key=lambda one: (one.group, one.topic, one.partition))

    def topic_deleted(self, topic: str) -> None:
        self._ledgers.forget(topic)

    def release(self) -> None:
        """The node stops: nobody waits any longer."""
        for ledger in self._ledgers.all():
            ledger.wake()

    # ---------------------------------------------------------------- time

    async def _tick(self, ledger: OwnedLedger, now_ms: int) -> None:
        source = ledger.source
        try:
            await ledger.ready()
            decision = tick(
                ledger.state,
                lambda group_id: self._policies.policy(source.topic, source.index, group_id),
                now_ms,
            )
            ledger.carry_out(decision.events)
        except GoQueueError:
            ledger.pause(now_ms)
            return
        if decision.events:
            self._metrics.note(decision.events)
            self._follow_up(ledger, decision)


def _finished(
    ledger: OwnedLedger, window: Window, claim: Claim, reply: GoQueueError | None
) -> Finished | GoQueueError:
    if reply is not None:
        return reply
    source = ledger.source
    return Finished(source.topic, source.index, claim.offset, window.committed_offset, window.in_flight_count)


def _returned(
    ledger: OwnedLedger, window: Window, claim: Claim, reply: Nacked | GoQueueError
) -> Returned | GoQueueError:
    if isinstance(reply, GoQueueError):
        return reply
    source = ledger.source
    return Returned(
        source.topic,
        source.index,
        claim.offset,
        window.committed_offset,
        window.in_flight_count,
        reply.is_dead,
        reply.deliveries,
        reply.visible_ms,
    )


def _prolonged(
    ledger: OwnedLedger, window: Window, claim: Claim, reply: Extension | GoQueueError
) -> Prolonged | GoQueueError:
    if isinstance(reply, GoQueueError):
        return reply
    return Prolonged(ledger.source.topic, ledger.source.index, claim.offset, reply.deadline_ms)


def _stats(ledger: OwnedLedger, window: Window) -> QueueStats:
    return QueueStats(
        ledger.source.topic,
        ledger.source.index,
        window.group_id,
        window.committed_offset,
        ledger.source.last_stable_offset,
        window.in_flight_count,
        len(window.entries) - window.in_flight_count,
        window.settled_count,
        window.moved_count,
    )


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
