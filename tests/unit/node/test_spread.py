"""Use cases over partitions of several nodes: each does its part, and the client gets one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable
from goqueue.model.errors import DiskFull, GoQueueError, InvalidRequest, TimedOut
from goqueue.model.record import NewRecord, Producer, StoredRecord
from goqueue.node.other_nodes import FinishCall, PollCall, PollTold, PublishCall, Settled
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Finished
from goqueue.node.requests import NewMessage, Outcome
from goqueue.node.spread import publishing as publishing_module
from goqueue.node.spread.polling import SpreadPolling
from goqueue.node.spread.publishing import SpreadPublisher
from goqueue.node.spread.receipts import SpreadReceipts


class Map:
    """Leaders by partition; None is this node. Each look takes the next state of a partition that changes."""

    def __init__(self, *leaders: str | None) -> None:
        self.leaders: list[str | None] = list(leaders)

    def leads_all(self, topic: str) -> bool:
        return all(leader is None for leader in self.leaders)

    def leader_of(self, topic: str, partition: int) -> str | None:
        return self.leaders[partition] if partition < len(self.leaders) else None

    def check_leads(self, topic: str, partition: int) -> None:
        assert self.leader_of(topic, partition) is None

    async def carry(self, belonging: Any, here: Any, there: Any, *, may_repeat: bool) -> Any:
        target = self.leader_of(*belonging)
        return await (here() if target is None else there(target))

    async def pause(self) -> None:
        await asyncio.sleep(0)


# ---------------------------------------------------------------- publishing


class Logs:
    """What each node has stored, by partition; `errors` are raised, or told, once each, before anything is stored."""

    def __init__(self) -> None:
        self.stored: dict[int, list[bytes | None]] = {}
        self.calls: list[tuple[str | None, int]] = []
        self.raised: dict[str | None, list[GoQueueError]] = {}
        self.told: dict[int, list[GoQueueError]] = {}

    def placed(self, topic: str, messages: Sequence[NewMessage], *, is_idempotent: bool) -> list[NewMessage]:
        return [
            one if one.partition is not None else NewMessage(one.record, at % 3)
            for at, one in enumerate(messages)
        ]

    async def publish_at(self, node: str | None, call: PublishCall) -> list[Outcome]:
        self.calls.append((node, len(call.messages)))
        if self.raised.get(node):
            raise self.raised[node].pop(0)
        partitions = {one.partition or 0 for one in call.messages}
        refused = {one: self.told[one].pop(0) for one in partitions if self.told.get(one)}
        return [self._store(one.partition or 0, one.record, refused) for one in call.messages]

    def _store(self, partition: int, record: NewRecord, refused: dict[int, GoQueueError]) -> Outcome:
        if partition in refused:
            return Outcome(partition, None, refused[partition])
        log = self.stored.setdefault(partition, [])
        log.append(record.value)
        return Outcome(partition, len(log) - 1)

    # as the publisher of this node

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks, producer: Producer | None = None
    ) -> list[Outcome]:
        return await self.publish_at(None, PublishCall(topic, messages, acks, producer))


class Others:
    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    async def publish(self, target: str, call: PublishCall) -> list[Outcome]:
        return await self._logs.publish_at(target, call)


def publish(
    logs: Logs, places: Map, partitions: Sequence[int | None], producer: Producer | None = None
) -> list[Outcome]:
    anything: Any = (logs, places, Others(logs))
    messages = [
        NewMessage(NewRecord(None, str(at).encode()), partition) for at, partition in enumerate(partitions)
    ]
    return asyncio.run(SpreadPublisher(*anything).publish("t", messages, acks=Acks.ALL, producer=producer))


def test_messages_go_to_their_leaders_together_and_results_come_back_in_order() -> None:
    logs = Logs()
    outcomes = publish(logs, Map(None, "n2", "n3"), [2, 0, 1, 2, None, 0])
    assert [(one.partition, one.offset) for one in outcomes] == [
        (2, 0),
        (0, 0),
        (1, 0),
        (2, 1),
        (1, 1),
        (0, 1),
    ]
    assert sorted(logs.calls, key=str) == [("n2", 2), ("n3", 2), (None, 2)]
    assert logs.stored == {2: [b"0", b"3"], 0: [b"1", b"5"], 1: [b"2", b"4"]}


def test_a_node_that_leads_everything_does_not_look_further() -> None:
    logs = Logs()
    publish(logs, Map(None, None, None), [None, None])
    assert logs.calls == [(None, 2)]


def test_what_a_former_leader_refuses_is_sent_again_once_and_nothing_else_is() -> None:
    logs = Logs()
    logs.told[1] = [NotLeader("t", 1, 3)]
    outcomes = publish(logs, Map(None, "n2", "n3"), [0, 1, 2, 1])
    assert [one.offset for one in outcomes] == [0, 0, 0, 1]
    assert logs.stored == {0: [b"0"], 1: [b"1", b"3"], 2: [b"2"]}


def test_a_node_that_cannot_be_reached_is_asked_again() -> None:
    logs = Logs()
    logs.raised["n2"] = [PeerUnreachable("away"), PeerUnreachable("away")]
    assert [one.offset for one in publish(logs, Map("n2"), [0])] == [0]
    assert len(logs.calls) == 3


def test_what_may_be_stored_is_sent_again_only_for_an_idempotent_producer() -> None:
    logs = Logs()
    logs.raised["n2"] = [TimedOut("lost")]
    with pytest.raises(TimedOut):
        publish(logs, Map("n2"), [0])
    logs.raised["n2"] = [TimedOut("lost")]
    assert publish(logs, Map("n2"), [0], Producer(1, 0, 0))[0].offset == 0


def test_messages_that_may_be_stored_are_told_so_beside_those_that_are() -> None:
    logs = Logs()
    logs.raised["n2"] = [TimedOut("lost")]
    outcomes = publish(logs, Map(None, "n2"), [0, 1])
    assert outcomes[0].offset == 0
    assert isinstance(outcomes[1].error, TimedOut)


def test_a_request_that_one_node_refuses_as_a_whole_is_refused_as_a_whole() -> None:
    logs = Logs()
    logs.raised["n2"] = [DiskFull("full")]
    with pytest.raises(DiskFull):
        publish(logs, Map("n2", "n3"), [0, 0])


def test_messages_of_an_idempotent_producer_go_to_one_node_or_are_refused_here() -> None:
    logs = Logs()
    publish(logs, Map("n2", "n3"), [0, 1], Producer(1, 0, 0))
    assert logs.calls == [(None, 2)]


def test_patience_with_a_partition_that_nobody_leads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing_module, "PATIENCE_S", 0.0)
    logs = Logs()
    logs.told[0] = [NotLeader("t", 0)]
    assert isinstance(publish(logs, Map("n2"), [0])[0].error, NotLeader)


# ---------------------------------------------------------------- receipts


def receipt(partition: int, offset: int) -> str:
    return f"t:{partition}:{offset}:1:1.0.{'0' * 24}"


def finished(text: str) -> Settled:
    if text == receipt(9, 9):
        return InvalidRequest("no")
    partition, offset = text.split(":")[1:3]
    return Finished("t", int(partition), int(offset), 0, 0)


class Ledgers:
    def __init__(self) -> None:
        self.asked: list[tuple[str | None, list[str]]] = []
        self.failing: str | None = ""

    async def finish(self, target: str, call: FinishCall) -> list[Settled]:
        return self._finish(target, call.receipts)

    async def ack(self, receipts: Sequence[str]) -> list[Settled]:
        return self._finish(None, receipts)

    def _finish(self, node: str | None, receipts: Sequence[str]) -> list[Settled]:
        self.asked.append((node, list(receipts)))
        if node == self.failing:
            raise TimedOut("lost")
        return [finished(one) for one in receipts]


def ack(ledgers: Ledgers, places: Map, receipts: Sequence[str]) -> Sequence[Settled]:
    anything: Any = (ledgers, places, ledgers)
    return asyncio.run(SpreadReceipts(*anything, count_max=100).ack(receipts))


def test_receipts_are_settled_by_the_leaders_and_answered_in_order() -> None:
    ledgers = Ledgers()
    texts = [receipt(2, 0), receipt(0, 0), receipt(2, 1), receipt(1, 0), receipt(0, 1)]
    answers = ack(ledgers, Map(None, "n2", "n3"), texts)
    assert answers == [finished(one) for one in texts]
    assert {node for node, _ in ledgers.asked} == {None, "n2", "n3"}


def test_receipts_that_make_no_sense_are_refused_here() -> None:
    ledgers = Ledgers()
    ack(ledgers, Map("n2"), ["t:0:0:1:zz", receipt(0, 0)])
    assert [node for node, _ in ledgers.asked] == [None, "n2"]


def test_a_node_that_fails_fails_its_receipts_only() -> None:
    ledgers = Ledgers()
    ledgers.failing = "n2"
    answers = ack(ledgers, Map(None, "n2"), [receipt(1, 0), receipt(0, 0)])
    assert isinstance(answers[0], TimedOut)
    assert isinstance(answers[1], Finished)
    with pytest.raises(TimedOut):
        ack(ledgers, Map(None, "n2"), [receipt(1, 0)])


# ---------------------------------------------------------------- polling


class Desk:
    """Queues of several nodes: who polls gets what is there, or waits until the test puts something there."""

    def __init__(self, in_flight_count_max: int = 100) -> None:
        self.ready: dict[str | None, list[Delivered]] = {}
        self.held: dict[str | None, int] = {}
        self.given_back: list[str] = []
        self.ended: list[str] = []
        self.limits: list[int] = []
        self.refusing: dict[str | None, list[GoQueueError]] = {}
        self.polling = self
        self.is_ready = True
        self._max = in_flight_count_max
        self._ending: dict[str, asyncio.Event] = {}
        self.news: dict[str | None, asyncio.Event] = {}
        self.waiting = asyncio.Event()

    def put(self, node: str | None, partition: int, *offsets: int) -> None:
        record = [StoredRecord(offset, 0, None, b"") for offset in offsets]
        self.ready.setdefault(node, []).extend(
            Delivered("t", partition, one, 2, 1, 0, receipt(partition, one.offset)) for one in record
        )
        self.news.setdefault(node, asyncio.Event()).set()

    def credit(self, poll: Poll) -> int:
        return self._max - self.held.get(None, 0)

    async def _take(self, node: str | None, limit: int, wait_ms: int, id: str) -> list[Delivered]:
        if self.refusing.get(node):
            raise self.refusing[node].pop(0)
        self.limits.append(limit)
        if wait_ms and not self.ready.get(node):
            self.news.setdefault(node, asyncio.Event()).clear()
            ending = self._ending.setdefault(id, asyncio.Event())
            self.waiting.set()
            works = [asyncio.ensure_future(self.news[node].wait()), asyncio.ensure_future(ending.wait())]
            try:
                await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for work in works:
                    work.cancel()
        ready = self.ready.get(node, [])
        found, self.ready[node] = ready[:limit], ready[limit:]
        self.held[node] = self.held.get(node, 0) + len(found)
        return found

    # as this node's queue, its receipts, and the other nodes

    async def poll(self, first: Any, call: PollCall | None = None) -> Any:
        if call is None:
            return await self._take(None, first.limit, first.wait_ms, "")
        delivered = await self._take(first, call.limit, call.wait_ms, call.id) if call.limit else []
        return PollTold(delivered, self.held.get(first, 0))

    async def end_poll(self, target: str, id: str) -> None:
        self.ended.append(target)
        self._ending.setdefault(id, asyncio.Event()).set()

    async def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, reason: str = ""
    ) -> list[Any]:
        self.given_back += receipts
        return []


class Serials:
    def __init__(self) -> None:
        self._last = 0

    def fresh(self) -> str:
        self._last += 1
        return str(self._last)


def offsets(found: Sequence[Delivered]) -> list[tuple[int, int]]:
    return sorted((one.partition, one.record.offset) for one in found)


def with_desk(
    main: Callable[[Desk, Callable[..., Any]], Any], places: Map, *, in_flight_count_max: int = 100
) -> None:
    async def run() -> None:
        desk = Desk(in_flight_count_max)
        anything: Any = (desk, desk, places, desk, Serials())
        polling = SpreadPolling(*anything)

        async def poll(limit: int, wait_ms: int = 0) -> list[Delivered]:
            asked = [("t", index) for index in range(len(places.leaders))]
            async with asyncio.timeout(10):
                return await polling.poll(Poll("g", "m", asked, limit, wait_ms))

        await main(desk, poll)

    asyncio.run(run())


def test_a_poll_takes_of_one_leader_after_the_other_and_no_more_than_it_wants() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        desk.put(None, 0, 0, 1)
        desk.put("n2", 1, 0, 1)
        desk.put("n3", 2, 0, 1)
        first, second = await poll(4), await poll(4)
        assert (len(first), len(second)) == (4, 2)
        assert offsets([*first, *second]) == [(at, offset) for at in range(3) for offset in range(2)]
        assert not desk.given_back

    with_desk(main, Map(None, "n2", "n3"))


def test_whoever_has_something_first_ends_the_wait_of_all() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        for node, partition in (("n3", 2), (None, 0), ("n2", 1)):
            desk.ended.clear()
            desk.waiting.clear()
            polling = asyncio.ensure_future(poll(5, 60_000))
            await desk.waiting.wait()
            desk.put(node, partition, 7)
            assert offsets(await polling) == [(partition, 7)]
            assert sorted(desk.ended) == [one for one in ("n2", "n3") if one != node]

    with_desk(main, Map(None, "n2", "n3"))


def test_what_several_give_at_once_beyond_the_limit_is_given_back() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        polling = asyncio.ensure_future(poll(3, 60_000))
        await desk.waiting.wait()
        await asyncio.sleep(0)
        desk.put("n2", 1, 0, 1)
        desk.put("n3", 2, 0, 1)
        found = await polling
        assert len(found) == 3
        assert len(desk.given_back) == 1
        assert {one.receipt for one in found}.isdisjoint(desk.given_back)

    with_desk(main, Map(None, "n2", "n3"))


def test_a_member_holds_no_more_in_all_than_it_may() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        for node, partition in ((None, 0), ("n2", 1), ("n3", 2)):
            desk.put(node, partition, *range(4))
        got = [*await poll(10), *await poll(10)]
        assert len(got) == 5
        desk.held["n2"] = desk.held["n3"] = 0  # it has acknowledged to the leaders
        assert len(await poll(10)) > 0

    with_desk(main, Map(None, "n2", "n3"), in_flight_count_max=5)


def test_a_leader_that_moves_does_not_fail_the_poll() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        desk.refusing["n2"] = [NotLeader("t", 1), PeerUnreachable("away")]
        desk.put("n3", 2, 0)
        assert offsets(await poll(5)) == [(2, 0)]
        desk.put("n2", 1, 0)
        assert offsets(await poll(5, 60_000)) == [(1, 0)]

    with_desk(main, Map(None, "n2", "n3"))


def test_an_error_is_raised_where_nobody_has_anything() -> None:
    async def main(desk: Desk, poll: Callable[..., Any]) -> None:
        desk.refusing["n2"] = [InvalidRequest("no")]
        with pytest.raises(InvalidRequest):
            await poll(5)

    with_desk(main, Map(None, "n2"))
