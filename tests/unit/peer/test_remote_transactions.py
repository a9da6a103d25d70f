"""Transactions between nodes over the wire: markers that come up together go together, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.peers import Links, Station

from goqueue.api.kafka.call import Answer, Api, Call, Later
from goqueue.api.kafka.queue_calls import QueueCallsApi
from goqueue.api.kafka.transactions import TransactionsApi
from goqueue.api.kafka.txn_markers import TxnMarkersApi
from goqueue.model.cluster_errors import CoordinatorFenced, NotCoordinator, NotLeader, PeerUnreachable
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    NotEnoughReplicas,
    TopicNotFound,
    TransactionAbortable,
)
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.queue.exchange import LeftTold
from goqueue.node.transactions.for_nodes import ForNodes
from goqueue.node.transactions.remote import Marker
from goqueue.node.transactions.requests import ProducerEpoch, TopicPartition
from goqueue.peer.asking import Asking
from goqueue.sim.loop import SimLoop, run

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
        self.for_nodes = self  # which says what becomes of those who wait
        self.stuck_ids: set[str] = set()

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
        await self._wait_if_stuck(id)
        return {part: self.refused[part] for part in parts if part in self.refused}

    async def add_partitions(
        self, id: str, producer_id: int, epoch: int, parts: list[TopicPartition]
    ) -> dict[TopicPartition, GoQueueError]:
        self.asked.append(("add", id, producer_id, epoch, *parts))
        await self._wait_if_stuck(id)
        if id in self.refused:
            raise self.refused[id]
        return {}

    async def add_offsets(self, id: str, producer_id: int, epoch: int, group_id: str) -> None:
        self.asked.append(("offsets", id, producer_id, epoch, group_id))
        await self._wait_if_stuck(id)
        if group_id in self.refused:
            raise self.refused[group_id]

    async def _wait_if_stuck(self, id: str) -> None:
        self.changed.set()
        if id in self.stuck_ids:
            await asyncio.Event().wait()


class PlayedCoordinator:
    def shard(self, transactional_id: str) -> PlayedCoordinator:
        return self

    def check_settles(self, *, writes: bool) -> None:
        pass


def with_a_peer(
    transactions: PlayedTransactions, test: Callable[[Links], Awaitable[None]], *, is_simulated: bool = False
) -> None:
    async def simulated(_: SimLoop) -> None:
        await main()

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

    if is_simulated:
        run(simulated, seed=1)
    else:
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


def test_a_transaction_whose_coordinator_cannot_say_keeps_no_other_from_being_checked() -> None:
    played = PlayedTransactions()
    played.stuck_ids = {"stuck"}
    behind: Any = played
    coordinator: Any = PlayedCoordinator()
    behind.for_nodes = ForNodes(behind, coordinator)

    async def test(links: Links) -> None:
        loop, ask = asyncio.get_running_loop(), links.transactions
        for _ in range(3):
            stuck = [
                asyncio.ensure_future(asked)
                for asked in (
                    ask.add_partition("n1", "stuck", WHO, ORDERS, is_check=True),
                    ask.add_partition("n1", "stuck", WHO, ORDERS, is_check=False),
                    ask.add_group("n1", "stuck", WHO, "workers"),
                )
            ]
            began_s = loop.time()
            await ask.add_partition("n1", "app", WHO, ORDERS, is_check=True)
            await ask.add_group("n1", "app", WHO, "workers")
            assert loop.time() - began_s < 4  # less than who asks has patience for
            outcomes = await asyncio.gather(*stuck, return_exceptions=True)
            assert [type(one) for one in outcomes] == [CoordinatorNotAvailable] * 3

    with_a_peer(played, test, is_simulated=True)


def test_a_client_that_adds_to_transactions_is_answered_one_after_another() -> None:
    played = PlayedTransactions()
    context: Any = SimpleNamespace(node=SimpleNamespace(transactions=played, groups=None, producers=None))
    request = SimpleNamespace(
        transactional_id="app", producer_id=WHO.producer_id, producer_epoch=WHO.epoch, group_id="workers"
    )

    async def main() -> None:
        answer = await TransactionsApi(context).add_offsets_to_txn(
            Call("add_offsets_to_txn", 3, 1, "client", "host"), request
        )
        assert not isinstance(answer, Later)
        assert played.asked == [("offsets", "app", *WHO, "workers")]

    asyncio.run(main())


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
