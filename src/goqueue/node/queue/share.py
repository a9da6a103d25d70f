"""The queue as Kafka's share groups use it (KIP-932): a member gets whole batches of the log and is told which records in
them are its own, and says what became of them by their offsets."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol, TypeVar

from msgspec import structs

from goqueue.core.lease.decisions import (
    Claim,
    Decision,
    Given,
    extend,
    reject,
    release,
    settle,
    settle_missing,
    trim,
)
from goqueue.core.lease.events import runs_of
from goqueue.core.lease.window import Window
from goqueue.log.batch import decode_rows
from goqueue.log.scan import Found
from goqueue.model.cluster_errors import CoordinatorLoading
from goqueue.model.errors import GoQueueError, ReceiptNotFound
from goqueue.model.group_settings import SHARE_AUTO_OFFSET_RESET, OffsetReset
from goqueue.model.priority import NORMAL
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers, Place
from goqueue.node.queue.metrics import QueueMetrics
from goqueue.node.queue.polling import Policies, Poll, Taken
from goqueue.node.queue.queue import Queue
from goqueue.node.queue.share_requests import Acquired, Said, Shared, ShareFetch, Verdict, Verdicts
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
R = TypeVar("R")
Touched = dict[Place, OwnedLedger]  # what is written in them is to be durable before it is told
_READ_BYTES = 1024 * 1024
_ANSWER_BYTES_MAX = 64 * 1024 * 1024  # librdkafka takes answers of up to 100 MB if it is not told otherwise
_REJECTED = "rejected by a share consumer"
_ACTIONS: Mapping[Verdict, str] = {
    Verdict.GAP: "acked",
    Verdict.ACCEPT: "acked",
    Verdict.RELEASE: "nacked",
    Verdict.REJECT: "rejected",
    Verdict.RENEW: "extended",
}


class Members(Protocol):
    def coordinates(self, group_id: str) -> bool:
        """Whether this node knows the members of a group."""

    def share_member(self, group_id: str, member_id: str, epoch: int | None) -> tuple[str, ...]:
        """The topics that a member reads; refused if there is no such member."""


class GroupSettings(Protocol):
    def of(self, group_id: str) -> Mapping[str, str]: ...


class Share:
    def __init__(
        self,
        queue: Queue,
        ledgers: Ledgers,
        table: TopicTable,
        guard: Guard,
        metrics: QueueMetrics,
        clock: Clock,
        policies: Policies,
        members: Members,
        settings: GroupSettings,
        spawn: Spawn,
    ) -> None:
        self._queue = queue
        self._ledgers = ledgers
        self._table = table
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._policies = policies
        self._members = members
        self._settings = settings
        self._spawn = spawn
        self._attached: set[tuple[str, str]] = set()  # members with a session
        self._farewells: dict[tuple[str, str], asyncio.Task[None]] = {}  # of sessions that have just ended

    # ---------------------------------------------------------------- members

    def check_member(self, group_id: str, member_id: str) -> None:
        """Where the group has its coordinator. Elsewhere whoever says so is a member, as in Kafka: one that is gone loses what
        it holds when its session ends, or its leases do."""
        self._guard.admit_read()
        if self._members.coordinates(group_id):
            self._members.share_member(group_id, member_id, None)

    def lock_ms(self, group_id: str, topics: Sequence[str]) -> int:
        """How long a member holds what it gets; of several topics the shortest time."""
        found: list[int] = []
        for topic in topics:
            try:
                found.append(self._policies.visibility_ms(topic, group_id))
            except GoQueueError:  # deleted meanwhile
                continue
        return min(found, default=0)

    async def attach(self, group_id: str, member_id: str) -> None:
        """The member has a session, until `let_go` or `abandon`. What it held in the one before is not its own any more:
        it must not get something new while that is being given back, or it would lose both."""
        key = (group_id, member_id)
        self._attached.add(key)
        while (farewell := self._farewells.get(key)) is not None:
            await asyncio.wait([farewell])

    async def let_go(self, group_id: str, member_id: str) -> None:
        """A member's session ends: others may have what it holds."""
        await asyncio.wait([self.abandon(group_id, member_id)])

    def abandon(self, group_id: str, member_id: str) -> asyncio.Task[None]:
        """The same for a member that is gone and waits for no answer."""
        key = (group_id, member_id)
        self._attached.discard(key)
        farewell = self._spawn(self._let_go_or_log(group_id, member_id, after=self._farewells.get(key)))
        self._farewells[key] = farewell
        farewell.add_done_callback(lambda task: self._said_farewell(key, task))
        return farewell

    def _said_farewell(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._farewells.get(key) is task:
            del self._farewells[key]

    async def member_left(self, group_id: str, member_id: str) -> None:
        """A client that goes away leaves its group and ends its session at the same time, over two connections: its last
        words come with the session's end, so what it holds is its own until then."""
        if (group_id, member_id) not in self._attached:
            await self._queue.let_go(group_id, member_id)

    async def _let_go_or_log(
        self, group_id: str, member_id: str, *, after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        try:
            await self._queue.let_go(group_id, member_id)
        except GoQueueError as error:  # its leases end when their time is up
            logger.warning("records of a lost member stay leased group=%s error=%r", group_id, error.sentence)

    # ---------------------------------------------------------------- giving

    async def fetch(self, want: ShareFetch) -> dict[Place, Shared]:
        """First what is said counts, then there is something to get, if need be later."""
        self._guard.admit_read()
        shared = {place: Shared(chunks=[], acquired=[]) for place in chain(want.places, want.said)}
        if not await self._learn(want.group_id, shared):
            return shared
        touched = await self._hear(want.group_id, want.member_id, want.said, shared)
        poll = Poll(
            want.group_id,
            want.member_id,
            want.places,
            want.limit,
            from_latest=self._begins_at_latest(want.group_id),
            is_wanted=lambda: want.is_current() and self._is_member(want.group_id, want.member_id),
        )
        deadline = asyncio.get_running_loop().time() + want.wait_ms / 1_000
        ledgers: dict[Place, OwnedLedger] = {}
        try:
            while True:
                ledgers = await self._open(poll, want, shared, touched)
                await self._take_each(poll, want, ledgers, shared, touched)
                self._queue.polling.pass_on(poll, ledgers.values())
                await self._settle(touched, shared)
                touched.clear()
                if not poll.is_wanted():  # what it has got since is given back with its session
                    for one in shared.values():
                        one.chunks, one.acquired = [], []
                    return shared
                if not ledgers or any(one.acquired or one.error for one in shared.values()):
                    return shared
                if not await self._queue.polling.until_news(poll, list(ledgers.values()), deadline):
                    return shared
        finally:
            self._queue.polling.pass_on(poll, ledgers.values())

    async def _learn(self, group_id: str, shared: dict[Place, Shared]) -> bool:
        """What the group has set. While nobody says, each partition is refused as if its log could not be used: that is what
        clients come back from."""
        try:
            await self._policies.learn(group_id)
        except GoQueueError as error:
            for one in shared.values():
                one.error = one.verdict_error = error
            return False
        return True

    def _is_member(self, group_id: str, member_id: str) -> bool:
        if not self._members.coordinates(group_id):
            return True
        try:
            self._members.share_member(group_id, member_id, None)
        except CoordinatorLoading:
            return True
        except GoQueueError:
            return False
        return True

    def _begins_at_latest(self, group_id: str) -> bool:
        chosen = self._settings.of(group_id).get(SHARE_AUTO_OFFSET_RESET, OffsetReset.LATEST)
        return chosen == OffsetReset.LATEST

    async def _open(
        self, poll: Poll, want: ShareFetch, shared: dict[Place, Shared], touched: Touched
    ) -> dict[Place, OwnedLedger]:
        """All of them, whether there is room for their records or not: a group that begins at the end of a partition
        begins now, and that must not be forgotten either. Later it would skip what came since."""
        ledgers: dict[Place, OwnedLedger] = {}
        if want.limit <= 0 or want.bytes_max <= 0:
            return ledgers
        for place in want.places:
            try:
                ledger = await self._ledgers.open(*place)
                if ledger.state.find(poll.group_id) is None:
                    await ledger.begin(poll.group_id, from_latest=poll.from_latest)
                    touched.setdefault(place, ledger)
            except GoQueueError as error:
                shared[place].error = error
            else:
                ledgers[place] = ledger
        return ledgers

    async def _take_each(
        self,
        poll: Poll,
        want: ShareFetch,
        ledgers: dict[Place, OwnedLedger],
        shared: dict[Place, Shared],
        touched: Touched,
    ) -> None:
        credit = self._queue.polling.credit(poll)
        room = _Room(min(want.limit, credit), want.bytes_max)
        for place, ledger in ledgers.items():
            try:
                given, batches = await self._take(poll, ledger, room)
            except GoQueueError as error:
                shared[place].error = error
                continue
            if given:
                touched.setdefault(place, ledger)
                shared[place].acquired = list(_acquired(given))
                shared[place].chunks = [batches[base].data for base in sorted(batches)]

    async def _take(
        self, poll: Poll, ledger: OwnedLedger, room: _Room
    ) -> tuple[list[Given], dict[int, Found]]:
        """Records, and the batches that hold them by their base offsets."""
        batch_bytes_max = self._table.get(ledger.source.topic).settings.max_message_bytes
        given: list[Given] = []
        batches: dict[int, Found] = {}
        free_count = 0  # records that follow in batches that are in the answer already

        def is_wanted() -> bool:
            """A step may wait for the disk for so long that leases of those before it end: it would take their records
            again, and the answer would have them twice."""
            return poll.is_wanted() and _are_leased(ledger, poll.group_id, given)

        step_poll = structs.replace(poll, is_wanted=is_wanted)
        while step := room.step(batch_bytes_max, free_count):
            try:
                taken = await self._queue.polling.take(ledger, step_poll, step)
            except GoQueueError:
                if not given:
                    raise
                taken = None  # what it has got is leased
            if taken is None:
                break
            found = await _batches(ledger.source, sorted(one.offset for one in taken.given), batches)
            room.fill(len(taken.given), [len(batch.data) for batch in found.values()])
            batches |= found
            given += self._still_there(ledger, taken, batches)
            if not taken.given:
                break
            end = batches[max(batches)].header.end_offset if batches else 0
            free_count = end - taken.window.cursors[NORMAL]
        return given, batches

    def _still_there(self, ledger: OwnedLedger, taken: Taken, batches: Mapping[int, Found]) -> list[Given]:
        """Without what compaction took after it was read ahead: that is done with."""
        lost = set(_lost(sorted(one.offset for one in taken.given), batches))
        if not lost:
            return taken.given
        ledger.carry_out(settle_missing(taken.window, sorted(lost)).events)
        return [one for one in taken.given if one.offset not in lost]

    async def _settle(self, touched: Touched, shared: dict[Place, Shared]) -> None:
        """Nobody hears of what is not durable."""
        async with asyncio.TaskGroup() as tasks:
            for place in sorted(touched):
                tasks.create_task(self._settle_one(touched[place], shared[place]))
        self._metrics.delivered.inc(
            sum(one.last - one.first + 1 for place in touched for one in shared[place].acquired)
        )

    async def _settle_one(self, ledger: OwnedLedger, one: Shared) -> None:
        try:
            await ledger.settled(gives_up=True)
            await ledger.trim()
        except GoQueueError as error:
            one.chunks, one.acquired = [], []
            one.error = error
            one.verdict_error = one.verdict_error or error

    # ---------------------------------------------------------------- finishing

    async def acknowledge(self, group_id: str, member_id: str, said: Said) -> dict[Place, Shared]:
        self._guard.admit_read()
        shared = {place: Shared(chunks=[], acquired=[]) for place in said}
        if not await self._learn(group_id, shared):
            return shared
        await self._settle(await self._hear(group_id, member_id, said, shared), shared)
        return shared

    async def _hear(self, group_id: str, member_id: str, said: Said, shared: dict[Place, Shared]) -> Touched:
        """What is said of a partition's records counts as a whole or not at all, as in Kafka."""
        touched: Touched = {}
        for place, verdicts in said.items():
            try:
                ledger = await self._ledgers.find(*place)
                if ledger is not None:
                    await ledger.ready()
                window = None if ledger is None else ledger.state.find(group_id)
                if ledger is None or window is None:
                    raise ReceiptNotFound(
                        f"group {group_id!r} was never given a record of {place[0]}-{place[1]}"
                    )
                self._hear_one(ledger, window, member_id, verdicts)
            except GoQueueError as error:
                shared[place].verdict_error = error
                self._metrics.count("refused", [error])
                continue
            touched[place] = ledger
        return touched

    def _hear_one(
        self, ledger: OwnedLedger, window: Window, member_id: str, verdicts: Sequence[Verdicts]
    ) -> None:
        # Retention may have taken records while they were held; nothing is to be said of them any more.
        start = ledger.source.log.log_start
        ledger.carry_out(trim(window, start).events)
        held_count = window.in_flight.get(member_id, 0)
        named = chain.from_iterable(one.from_offset(start) for one in verdicts)
        pairs = list(islice(named, held_count + 1))  # with more than it holds one is wrong
        claims = [Claim(offset, member=member_id) for offset, _ in pairs]
        now_ms = self._clock.now_ms()
        by_kind: dict[Verdict, list[Claim]] = {}
        for (_, kind), claim in zip(pairs, claims, strict=True):
            by_kind.setdefault(kind, []).append(claim)
        if len(by_kind) > 1:
            _refuse_any(settle(window, claims, now_ms=now_ms).reply)
        for kind in sorted(by_kind, reverse=True):  # after that only a renewal can be refused, so it is first
            decision = self._decide(kind, ledger, window, by_kind[kind], now_ms)
            _refuse_any(decision.reply)
            ledger.carry_out(decision.events)
            self._queue.follow_up(ledger, decision)
            self._metrics.count(_ACTIONS[kind], decision.reply)

    def _decide(
        self, kind: Verdict, ledger: OwnedLedger, window: Window, claims: list[Claim], now_ms: int
    ) -> Decision[list[object]]:
        source = ledger.source
        policy = self._policies.policy(source.topic, source.index, window.group_id)
        found: Decision[list[object]]
        match kind:
            case Verdict.GAP | Verdict.ACCEPT:
                found = _any(settle(window, claims, now_ms=now_ms, cursors=ledger.feed(window).ends()))
            case Verdict.RELEASE:
                found = _any(release(ledger.state, window, claims, policy=policy, now_ms=now_ms, delay_ms=0))
            case Verdict.REJECT:
                found = _any(
                    reject(ledger.state, window, claims, policy=policy, now_ms=now_ms, reason=_REJECTED)
                )
            case Verdict.RENEW:
                timeout_ms = self._policies.visibility_ms(source.topic, window.group_id)
                found = _any(
                    extend(ledger.state, window, claims, policy=policy, now_ms=now_ms, timeout_ms=timeout_ms)
                )
        return found


class _Room:
    """What an answer may still hold. Of a record that is leased and then does not fit nobody would hear until its time is
    up, so records are taken in steps that are sure to fit. The client's limit is one for batches of the size that was
    met so far; the first record is given however large it is."""

    def __init__(self, count: int, bytes_max: int) -> None:
        self._count = count
        self._bytes = bytes_max
        self._sure_bytes = _ANSWER_BYTES_MAX
        self._largest_bytes = 0  # of a batch

    def step(self, batch_bytes_max: int, free_count: int) -> int:
        """How many records to take next."""
        likely = max(self._bytes // (self._largest_bytes or batch_bytes_max), free_count)
        least = 0 if self._largest_bytes else 1
        return min(self._count, max(least, min(likely, self._sure_bytes // batch_bytes_max)))

    def fill(self, record_count: int, batch_sizes: Sequence[int]) -> None:
        self._count -= record_count
        self._bytes = max(0, self._bytes - sum(batch_sizes))
        self._sure_bytes -= sum(batch_sizes)
        self._largest_bytes = max([self._largest_bytes, *batch_sizes])


async def _batches(partition: Partition, offsets: Sequence[int], known: dict[int, Found]) -> dict[int, Found]:
    """The batches that hold these offsets, in ascending order, by their base offsets: those that are not known yet."""
    bases = sorted(known)
    found: dict[int, Found] = {}
    end = partition.log.log_start  # everything before it is in what was found
    for start, length in runs_of(offsets):
        at = max(start, end)
        while at < start + length:
            index = bisect_right(bases, at) - 1
            if index >= 0 and known[bases[index]].header.end_offset > at:
                at = end = known[bases[index]].header.end_offset
                continue
            part = await partition.read(at, end=start + length, bytes_max=_READ_BYTES)
            for batch in part.batches:
                found[batch.header.base_offset] = batch
            at = end = part.next_offset
    return found


def _are_leased(ledger: OwnedLedger, group_id: str, given: Sequence[Given]) -> bool:
    """Whether none of them can be given to anybody now."""
    window = ledger.state.find(group_id)
    return not given or (window is not None and all(window.is_leased(one.offset) for one in given))


def _lost(offsets: Sequence[int], batches: Mapping[int, Found]) -> Iterator[int]:
    """Those that no batch holds."""
    bases = sorted(batches)
    for start, length in runs_of(offsets):
        at, end = start, start + length
        while at < end:
            index = bisect_right(bases, at) - 1
            batch = batches[bases[index]] if index >= 0 else None
            if batch is None or batch.header.end_offset <= at:
                stop = min(end, bases[index + 1]) if index + 1 < len(bases) else end
                yield from range(at, stop)
            else:
                stop = min(end, batch.header.end_offset)
                yield from _thinned_out(batch, at, stop)
            at = stop


def _thinned_out(batch: Found, start: int, end: int) -> Iterator[int]:
    """Offsets in [start, end) without a record, in a batch that spans them."""
    header = batch.header
    if header.record_count > header.last_offset_delta:
        return
    kept = {header.base_offset + row[0] for row in decode_rows(batch.data, header)}
    yield from (offset for offset in range(start, end) if offset not in kept)


def _acquired(given: Sequence[Given]) -> Iterator[Acquired]:
    """Runs of records with as many deliveries, in ascending order."""
    first = last = deliveries = -1
    for one in sorted(given, key=lambda one: one.offset):
        if one.offset == last + 1 and one.deliveries == deliveries:
            last = one.offset
            continue
        if deliveries >= 0:
            yield Acquired(first, last, deliveries)
        first, last, deliveries = one.offset, one.offset, one.deliveries
    if deliveries >= 0:
        yield Acquired(first, last, deliveries)


def _refuse_any(replies: Sequence[object]) -> None:
    for reply in replies:
        if isinstance(reply, GoQueueError):
            raise reply


def _any(decision: Decision[list[R]]) -> Decision[list[object]]:
    return Decision(list[object](decision.reply), decision.events)
