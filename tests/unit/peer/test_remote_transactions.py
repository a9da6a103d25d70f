"""Transactions between nodes over the wire: markers that come up together go together, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.peers import Links, Station

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.queue_calls import QueueCallsApi
from goqueue.api.kafka.transactions import TransactionsApi
from goqueue.api.kafka.txn_markers import TxnMarkersApi
from goqueue.model.cluster_errors import CoordinatorFenced, NotCoordinator, NotLeader, PeerUnreachable
from goqueue.model.errors import (
    ConcurrentTransactions,
    GoQueueError,
    InvalidRequest,
    NotEnoughReplicas,
    TopicNotFound,
    TransactionAbortable,
)
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.queue.exchange import LeftTold
from goqueue.node.transactions.remote import Marker
from goqueue.node.transactions.requests import ProducerEpoch, TopicPartition
from goqueue.peer.asking import Asking

WHO = ProducerEpoch(7, 3)
MARKER = Marker(WHO, is_commit=True, is_epoch_bumped=True, coordinator_epoch=5)
ORDERS = TopicPartition("orders", 0)
_LEFT_TOLD = msgspec.msgpack.Decoder(LeftTold)


class PlayedTransactions:
    """What a node has behind its APIs: it notes what it is asked, and refuses some of it."""

    def __init__(self, refused: dict[TopicPartition | str, GoQueueError] | None = None) -> None:
        self.refused = refused or {}
        self.asked: list[object] = []
        self.request_count = 0
        self.gates: dict[TopicPartition, asyncio.Event] = {}
        self.changed = asyncio.Event()

    async def until_asked(self, count: int) -> None:
        while len(self.asked) < count:
            self.changed.clear()
            await self.changed.wait()

    async def accept_marker(self, marker: Marker, part: TopicPartition) -> None:
        self.asked.append((marker, part))
        self.changed.set()
        if part in self.gates:
            await self.gates[part].wait()
        if part in self.refused:
            raise self.refused[part]

    async def verify(
        self, id: str, producer_id: int, epoch: int, parts: list[TopicPartition]
    ) -> dict[TopicPartition, GoQueueError]:
        self.asked.append(("verify", id, producer_id, epoch, *parts))
        return {part: self.refused[part] for part in parts if part in self.refused}

    async def add_partitions(
        self, id: str, producer_id: int, epoch: int, parts: list[TopicPartition]
    ) -> dict[TopicPartition, GoQueueError]:
        self.asked.append(("add", id, producer_id, epoch, *parts))
        if id in self.refused:
            raise self.refused[id]
        return {}

    async def add_offsets(self, id: str, producer_id: int, epoch: int, group_id: str) -> None:
        self.asked.append(("offsets", id, producer_id, epoch, group_id))
        if group_id in self.refused:
            raise self.refused[group_id]


def with_a_peer(transactions: PlayedTransactions, test: Callable[[Links], Awaitable[None]]) -> None:
    async def main() -> None:
        node = SimpleNamespace(transactions=transactions, groups=None, producers=None)
        context: Any = SimpleNamespace(node=node)
        apis = [
            *TxnMarkersApi(context).apis(),
            *TransactionsApi(context).apis(),
            *QueueCallsApi(context).apis(),
        ]
        station = await Station("n1", apis=[_counted(api, transactions) for api in apis]).start()
        links = Links(address_of=lambda name: station.address if name == "n1" else None)
        try:
            async with asyncio.timeout(20):
                await test(links)
        finally:
            await links.close()
            await station.stop()

    asyncio.run(main())


def _counted(api: Api, transactions: PlayedTransactions) -> Api:
    async def handle(call: Call, request: Any) -> Answer:
        transactions.request_count += 1
        return await api.handle(call, request)

    return Api(api.name, api.first, api.last, handle)


def test_markers_that_come_up_together_are_one_request() -> None:
    played = PlayedTransactions()
    parts = [TopicPartition(topic, index) for topic in ("orders", "bills") for index in range(3)]
    other = Marker(ProducerEpoch(8, 0), is_commit=False, is_epoch_bumped=False, coordinator_epoch=2)

    async def test(links: Links) -> None:
        await asyncio.gather(
            *(links.transactions.write_marker("n1", MARKER, part) for part in parts),
            links.transactions.write_marker("n1", other, ORDERS),
        )

    with_a_peer(played, test)
    assert played.request_count == 1
    assert sorted(played.asked, key=str) == sorted(
        [*((MARKER, part) for part in parts), (other, ORDERS)], key=str
    )


def test_each_marker_is_answered_for_itself() -> None:
    bills, groups = TopicPartition("bills", 1), TopicPartition(OFFSETS_TOPIC, 4)
    few = TopicPartition("bills", 2)
    played = PlayedTransactions(
        {
            bills: NotLeader("bills", 1),
            groups: NotLeader(OFFSETS_TOPIC, 4),
            ORDERS: CoordinatorFenced("late"),
            few: NotEnoughReplicas("one of two"),
        }
    )
    well = TopicPartition("orders", 1)

    async def test(links: Links) -> None:
        outcomes = await asyncio.gather(
            *(
                links.transactions.write_marker("n1", MARKER, one)
                for one in (well, bills, groups, ORDERS, few)
            ),
            return_exceptions=True,
        )
        assert [type(one) for one in outcomes] == [
            type(None),
            NotLeader,
            NotCoordinator,
            CoordinatorFenced,
            NotEnoughReplicas,
        ]

    with_a_peer(played, test)


def test_a_marker_that_waits_keeps_no_other_from_being_written() -> None:
    played = PlayedTransactions()
    played.gates[ORDERS] = asyncio.Event()
    well = TopicPartition("orders", 1)

    async def test(links: Links) -> None:
        stuck = asyncio.ensure_future(links.transactions.write_marker("n1", MARKER, ORDERS))
        await played.until_asked(1)
        other = asyncio.ensure_future(links.transactions.write_marker("n1", MARKER, well))
        await played.until_asked(2)
        assert played.asked == [(MARKER, ORDERS), (MARKER, well)]
        assert not stuck.done()
        played.gates[ORDERS].set()
        await asyncio.gather(stuck, other)

    with_a_peer(played, test)


def test_what_else_is_asked_of_a_node_does_not_wait_for_a_marker() -> None:
    played = PlayedTransactions()
    played.gates[ORDERS] = asyncio.Event()

    async def test(links: Links) -> None:
        stuck = asyncio.ensure_future(links.transactions.write_marker("n1", MARKER, ORDERS))
        await played.until_asked(1)
        await links.transactions.add_partition("n1", "app", WHO, ORDERS, is_check=True)
        await links.transactions.add_group("n1", "app", WHO, "workers")
        with pytest.raises(InvalidRequest, match="newer"):
            await Asking(links.call).ask("n1", "no such question", LeftTold(), _LEFT_TOLD)
        assert not stuck.done()
        played.gates[ORDERS].set()
        await stuck

    with_a_peer(played, test)


def test_markers_for_a_node_that_is_away_are_told_so() -> None:
    async def test(links: Links) -> None:
        for _ in range(2):
            with pytest.raises(PeerUnreachable):
                await links.transactions.write_marker("n9", MARKER, ORDERS)

    with_a_peer(PlayedTransactions(), test)


def test_a_partition_is_added_or_only_checked() -> None:
    played = PlayedTransactions(
        {ORDERS: TransactionAbortable("not in it"), "busy": ConcurrentTransactions("")}
    )

    async def test(links: Links) -> None:
        ask = links.transactions.add_partition
        await ask("n1", "app", WHO, ORDERS, is_check=False)
        with pytest.raises(TransactionAbortable):
            await ask("n1", "app", WHO, ORDERS, is_check=True)
        with pytest.raises(ConcurrentTransactions):
            await ask("n1", "busy", WHO, ORDERS, is_check=False)

    with_a_peer(played, test)
    assert played.asked == [
        ("add", "app", *WHO, ORDERS),
        ("verify", "app", *WHO, ORDERS),
        ("add", "busy", *WHO, ORDERS),
    ]


def test_a_group_is_added_by_its_name() -> None:
    played = PlayedTransactions({"strangers": TopicNotFound("orders")})

    async def test(links: Links) -> None:
        await links.transactions.add_group("n1", "app", WHO, "workers")
        with pytest.raises(TopicNotFound):
            await links.transactions.add_group("n1", "app", WHO, "strangers")

    with_a_peer(played, test)
    assert played.asked[0] == ("offsets", "app", *WHO, "workers")
