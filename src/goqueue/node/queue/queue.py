"""The queue: records of a topic are given to the members of a group one by one, and each says what became of it.

Whatever changes who holds what is in the ledger of its partition, durably, before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from goqueue.core.lease.decisions import (
    VISIBILITY_MS_MAX,
    Claim,
    Decision,
    Extension,
    Nacked,
    close_group,
    extend,
    let_go,
    reject,
    release,
    seek,
    settle,
    tick,
)
from goqueue.core.lease.events import Moving
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import Window
from goqueue.model.errors import (
    GoQueueError,
    GroupNotFound,
    InvalidName,
    InvalidRequest,
    LeaseSuperseded,
    PartitionNotFound,
    ReceiptNotFound,
    TopicNotFound,
)
from goqueue.node.clock import Clock
from goqueue.node.config import QueueConfig
from goqueue.node.guard import Guard, NodeState
from goqueue.node.queue.lane_stats import WindowLanes, window_lanes
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers, Place
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.polling import Policies, Poll, Polling
from goqueue.node.queue.receipts import Issuer, Receipt, Receipts, read_issue, read_receipt
from goqueue.node.queue.requests import Delivered, Finished, Prolonged, QueueStats, Returned
from goqueue.node.shard_timer import ShardTimer
from goqueue.node.topic_table import TopicTable

R = TypeVar("R")
A = TypeVar("A")


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
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._receipts = receipts
        self._policies = policies
        self._when_moving = when_moving
        self.timer = ShardTimer(ledgers.all, self._tick, clock)
        ledgers.when_opened = self._resume
        self.polling = Polling(
            config, ledgers, table, guard, metrics, clock, receipts, policies, self.timer, self.follow_up
        )

    async def start(self) -> None:
        """Go on where the logs end: with what is leased until its time is up, with what is to be moved at once."""
        await self._ledgers.start()

    def _resume(self, ledger: OwnedLedger) -> None:
        if ledger.state.moves:
            self._when_moving(ledger)
        self.timer.watch(ledger)

    @property
    def is_ready(self) -> bool:
        """Not so while the node stops: then nobody waits."""
        return self._guard.state is NodeState.READY

    async def poll(self, poll: Poll) -> list[Delivered]:
        """Records for a member; it waits for some if there are none. None also where it holds as many as it may."""
        return await self.polling.poll(poll)

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
                policy=self._policy(ledger, window),
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
        answer: Callable[[_Standing, int, R], A | GoQueueError],
    ) -> list[A | GoQueueError]:
        """What is decided about each receipt, in order; those of one window together."""
        self._guard.admit_read()
        if not 1 <= len(texts) <= self._guard.limits.messages_per_request_max:
            raise InvalidRequest(
                f"a request names 1 to {self._guard.limits.messages_per_request_max} receipts, not {len(texts)}"
            )
        answers: list[A | GoQueueError | None] = [None] * len(texts)
        touched: list[OwnedLedger] = []
        for ledger, window, places, claims in await self._sorted_out(texts, await self._receipts(), answers):
            try:
                await self._policies.learn(window.group_id)
                await ledger.ready()
                decision = decide(ledger, window, claims)
                ledger.carry_out(decision.events)
            except GoQueueError as error:
                for at in places:
                    answers[at] = error
                continue
            touched.append(ledger)
            self.follow_up(ledger, decision)
            standing = _Standing(
                ledger.source.topic, ledger.source.index, window.committed_offset, window.in_flight_count
            )
            for at, claim, reply in zip(places, claims, decision.reply, strict=True):
                answers[at] = answer(standing, claim.offset, reply)
        for ledger in touched:
            await ledger.settled(gives_up=True)
            await ledger.trim()
        return [one for one in answers if one is not None]

    async def _sorted_out(
        self, texts: Sequence[str], receipts: Receipts, answers: list[A | GoQueueError | None]
    ) -> list[_Claimed]:
        """By window; where a receipt is void, its answer says why."""
        shown: dict[str, list[tuple[int, Receipt]]] = {}  # by who gave them
        for at, text in enumerate(texts):
            try:
                receipt = read_receipt(text)
            except ReceiptNotFound as error:
                answers[at] = error
            else:
                shown.setdefault(receipt.issue, []).append((at, receipt))
        sorted_out: list[_Claimed] = []
        for issue, found in shown.items():
            try:
                origin = await self._origin(issue, receipts)
            except GoQueueError as error:
                for at, _ in found:
                    answers[at] = error
                continue
            refusals = {} if origin is None else origin.issuer.refusals([receipt for _, receipt in found])
            claimed = _Claimed(*origin[:2], [], []) if origin is not None and origin.is_current else None
            for at, receipt in found:
                text, _, offset, deliveries = receipt
                if origin is None:
                    answers[at] = ReceiptNotFound(
                        f"nothing is known of receipt {text!r} any more", receipt_handle=text
                    )
                elif refusals and text in refusals:
                    answers[at] = refusals[text]
                elif claimed is None:
                    answers[at] = LeaseSuperseded(origin.window.group_id, offset, deliveries, 0)
                else:
                    claimed.places.append(at)
                    claimed.claims.append(Claim(offset, deliveries))
            if claimed is not None and claimed.claims:
                sorted_out.append(claimed)
        return sorted_out

    async def _origin(self, text: str, receipts: Receipts) -> _Origin | None:
        """Who gave a receipt, if that is still there. NotLeader where another node may know it."""
        issue = read_issue(text)
        if issue is None:
            return None
        try:
            topic_id = self._table.get(issue.topic).facts.id
            ledger = await self._ledgers.find(issue.topic, issue.partition)
        except (TopicNotFound, PartitionNotFound, InvalidName):
            return None
        window = None if ledger is None else ledger.state.windows.get(issue.group)
        if ledger is None or window is None:
            return None
        is_current = window.incarnation == issue.incarnation
        return _Origin(ledger, window, receipts.issuer(topic_id, issue), is_current)

    def _policy(self, ledger: OwnedLedger, window: Window) -> LeasePolicy:
        return self._policies.policy(ledger.source.topic, ledger.source.index, window.group_id)

    def follow_up(self, ledger: OwnedLedger, decision: Decision[R]) -> None:
        self.timer.watch(ledger)
        self._metrics.note(decision.events)
        if any(isinstance(event, Moving) for event in decision.events):
            self._when_moving(ledger)

    # ---------------------------------------------------------------- groups

    async def let_go(self, group_id: str, member_id: str) -> None:
        """A member leaves; others may have what it holds."""

        def decide(ledger: OwnedLedger, window: Window) -> Decision[int]:
            return let_go(
                ledger.state,
                window,
                member_id,
                policy=self._policy(ledger, window),
                now_ms=self._clock.now_ms(),
            )

        await self._wherever(group_id, decide, lambda _, window: bool(window.in_flight.get(member_id)))

    async def seek(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """The group goes on from there; receipts that it has are void."""
        ledger = await self._ledgers.open(topic, partition)
        end = ledger.source.log.high_watermark
        under = ledger.tenure.leadership
        await ledger.source.settled(min(offset, end), under=under)  # as for a group that begins there
        window = await ledger.begin(group_id)
        ledger.carry_out(seek(window, offset).events)
        ledger.wake()
        await ledger.settled()

    async def forget(self, group_id: str, topic: str | None = None, partition: int | None = None) -> None:
        """The group is deleted, or its place in one topic, or in one partition; of those that this node leads."""

        def decide(ledger: OwnedLedger, window: Window) -> Decision[None]:
            return close_group(ledger.state, group_id)

        try:
            await self._wherever(
                group_id,
                decide,
                lambda ledger, _: (
                    topic in (None, ledger.source.topic) and partition in (None, ledger.source.index)
                ),
            )
        finally:
            for ledger in self._ledgers.all():
                ledger.forget_feeds()
            if topic is None:
                self.polling.forget(group_id)

    async def check_forget(self, group_id: str) -> None:
        """Raises where `forget` would, as far as that can be known."""
        for ledger in self._ledgers.all():
            if ledger.state.find(group_id) is not None:
                await ledger.ready()

    async def _wherever(
        self,
        group_id: str,
        decide: Callable[[OwnedLedger, Window], Decision[R]],
        is_meant: Callable[[OwnedLedger, Window], bool],
    ) -> None:
        """In every partition that the group reads. One that fails does not keep the others; then the failure is raised."""
        failure: GoQueueError | None = None
        touched: list[OwnedLedger] = []
        for ledger in self._ledgers.all():
            window = ledger.state.find(group_id)
            if window is None or not is_meant(ledger, window):
                continue
            try:
                await ledger.ready()
                decision = decide(ledger, window)
                ledger.carry_out(decision.events)
            except GoQueueError as error:
                failure = error
                continue
            self.follow_up(ledger, decision)
            touched.append(ledger)
        for ledger in touched:
            try:
                await ledger.settled(gives_up=True)
            except GoQueueError as error:
                failure = error
        if failure is not None:
            raise failure

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

    async def lanes(
        self, *, group_id: str | None = None, topic: str | None = None, limit: int, skip: int = 0
    ) -> tuple[list[WindowLanes], int]:
        """How lanes stand, some of all that match; and how many that is."""
        found = [
            (window.group_id, ledger.source.topic, ledger.source.index, ledger, window)
            for ledger in self._ledgers.all()
            for window in ledger.state.windows.values()
            if group_id in (None, window.group_id) and topic in (None, ledger.source.topic)
        ]
        found.sort(key=lambda one: one[:3])
        now_ms = self._clock.now_ms()
        shown = found[skip : skip + limit]
        return [await window_lanes(ledger, window, now_ms) for *_, ledger, window in shown], len(found)

    async def topic_deleted(self, topic: str) -> None:
        self._ledgers.forget(topic)

    def release(self) -> None:
        """The node stops: nobody waits any longer."""
        for ledger in self._ledgers.all():
            ledger.wake()

    # ---------------------------------------------------------------- time

    async def _tick(self, ledger: OwnedLedger, now_ms: int) -> None:
        source = ledger.source
        groups = [window.group_id for window in ledger.state.windows.values()]
        if not ledger.is_caught_up or not all(map(self._policies.knows, groups)):
            ledger.pause(now_ms)  # nobody else's time may stand still for it
            return
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
            self.follow_up(ledger, decision)


class _Origin(NamedTuple):
    """Of receipts."""

    ledger: OwnedLedger
    window: Window
    issuer: Issuer
    is_current: bool  # the group was not sent elsewhere since


class _Claimed(NamedTuple):
    ledger: OwnedLedger
    window: Window
    places: list[int]  # of the claims, in the request
    claims: list[Claim]


class _Standing(NamedTuple):
    """Of a group in a partition, after what was decided."""

    topic: str
    partition: int
    committed_offset: int
    in_flight_count: int


def _finished(standing: _Standing, offset: int, reply: GoQueueError | None) -> Finished | GoQueueError:
    if reply is not None:
        return reply
    topic, partition, committed_offset, in_flight_count = standing
    return Finished(topic, partition, offset, committed_offset, in_flight_count)


def _returned(standing: _Standing, offset: int, reply: Nacked | GoQueueError) -> Returned | GoQueueError:
    if isinstance(reply, GoQueueError):
        return reply
    topic, partition, committed_offset, in_flight_count = standing
    return Returned(
        topic,
        partition,
        offset,
        committed_offset,
        in_flight_count,
        reply.is_dead,
        reply.deliveries,
        reply.visible_ms,
    )


def _prolonged(standing: _Standing, offset: int, reply: Extension | GoQueueError) -> Prolonged | GoQueueError:
    if isinstance(reply, GoQueueError):
        return reply
    topic, partition, committed_offset, in_flight_count = standing
    return Prolonged(topic, partition, offset, committed_offset, in_flight_count, reply.deadline_ms)


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
