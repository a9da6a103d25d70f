"""All other nodes, each by its name: what `goqueue.node.cluster.ports.PeerLinks` promises, over the wire.

To each node there are, once they are needed: one HTTP connection for Raft messages, up to two that are kept for what this node has to tell or to
know so that it may live and lead, up to two for what its clients want of the controller, so that no crowd of these gets ahead of a heartbeat, one
for each request of a client that is carried over, and connections of Kafka frames, on which answers come in the order of the requests: one for
fetches, which wait for data, one for markers of transactions, one for records that are moved and one for questions about queues, which wait for
replicas, and one for everything else. So what waits holds up only its own kind, and one that is given up because nothing came ends no more than that.
Who moves records is not answered before this node has sent on what of them lives elsewhere, which is a question about queues; those ask nobody further,
so no two nodes wait for each other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from goqueue.core.catalog import AlterPartitions, RemoveNode
from goqueue.core.cluster.commands import Order
from goqueue.core.raft.messages import Message
from goqueue.node.cluster.exchange import (
    BEAT_ANSWERS,
    COMMAND,
    CONFIRMED,
    CONFIRMEDS,
    COPYING,
    COPYINGS,
    DONES,
    ENCODER,
    HEALTH,
    HEALTHS,
    HEARTBEAT,
    JOIN,
    LEAVE,
    NODE_VIEWS,
    NODES,
    STATE,
    STATES,
    Leave,
)
from goqueue.node.cluster.ports import (
    Answer,
    Beat,
    BeatAnswer,
    ClusterHealth,
    ClusterState,
    Confirmed,
    Copying,
    Done,
    Join,
    NodeView,
    ReplicaFound,
    ReplicaRound,
)
from goqueue.peer.asking import API as QUESTIONS
from goqueue.peer.asking import Asking
from goqueue.peer.calls import Calls
from goqueue.peer.dialling import Credentials, Dialler, LinkTimes, Patience
from goqueue.peer.fetching import API, VERSION, fetch_found, fetch_request
from goqueue.peer.forwarding import Forwards
from goqueue.peer.other_nodes import PeerNodes
from goqueue.peer.remote_appends import RemoteAppends
from goqueue.peer.remote_ledgers import RemoteLedgers
from goqueue.peer.remote_parts import RemoteParts
from goqueue.peer.remote_transactions import MARKERS, RemoteTransactions
from goqueue.peer.requests import Requests, decoded
from goqueue.peer.sender import Sender

_KEPT_COUNT_MAX = 2  # free connections for either kind of control requests


@dataclass(frozen=True, slots=True)
class _Peer:
    messages: Requests
    sender: Sender
    control: Requests
    orders: Requests
    fetches: Calls
    markers: Calls
    appends: Calls
    questions: Calls
    calls: Calls
    forwards: Forwards


class PeerLinks:
    """`number` is this node's own, under which it fetches; -1 until it has one. `chance` gives [0, 1), for the pauses between
    attempts to connect."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        number: Callable[[], int],
        address_of: Callable[[str], tuple[str, int] | None],
        chance: Callable[[], float],
        times: LinkTimes | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._times = times or LinkTimes()
        self._number = number
        self._chance = chance
        self._dialler = Dialler(credentials, address_of, self._times, context=context)
        self._patience = Patience()
        self._peers: dict[str, _Peer] = {}
        self._is_closed = False
        self.forwarded_count = 0
        self.nodes = PeerNodes(self)
        self.transactions = RemoteTransactions(self.call)
        asking = Asking(self.call)
        self.appends = RemoteAppends(Asking(self._call_append))
        self.ledgers = RemoteLedgers(asking)
        self.parts = RemoteParts(asking)

    def send(self, message: Message) -> None:
        if not self._is_closed:
            self._peer(message.target).sender.put(message)

    async def join(self, target: str, join: Join) -> Done:
        return await self._ask_done(target, self._peer(target).control, JOIN, ENCODER.encode(join))

    async def beat(self, target: str, beat: Beat) -> BeatAnswer:
        data = await self._peer(target).control.ask(
            HEARTBEAT, ENCODER.encode(beat), timeout_s=self._times.beat_ms / 1_000
        )
        return decoded(BEAT_ANSWERS, data, target)

    async def execute(self, target: str, command: Order) -> Done:
        """What a node says of partitions that it leads is its own affair: they commit nothing until it is decided."""
        peer = self._peer(target)
        requests = peer.control if isinstance(command, AlterPartitions) else peer.orders
        if isinstance(command, RemoveNode):
            return await self._ask_done(target, requests, LEAVE, ENCODER.encode(Leave(command.name)))
        return await self._ask_done(target, requests, COMMAND, ENCODER.encode(command))

    async def copying(self, target: str) -> list[Copying]:
        return decoded(COPYINGS, await self._shown(target, COPYING, self._times.ask_ms), target)

    async def confirmed(self, target: str) -> Confirmed:
        return decoded(CONFIRMEDS, await self._look(target, CONFIRMED, self._times.confirm_ms), target)

    async def state(self, target: str) -> ClusterState:
        return decoded(STATES, await self._look(target, STATE, self._times.beat_ms), target)

    async def health(self, target: str) -> ClusterHealth:
        return decoded(HEALTHS, await self._shown(target, HEALTH, self._times.beat_ms), target)

    async def views(self, target: str) -> list[NodeView]:
        return decoded(NODE_VIEWS, await self._shown(target, NODES, self._times.beat_ms), target).nodes

    async def fetch(
        self, target: str, round: ReplicaRound, *, wait_ms: int, bytes_max: int
    ) -> list[ReplicaFound]:
        request = fetch_request(round, replica=self._number(), wait_ms=wait_ms, bytes_max=bytes_max)
        timeout_s = (wait_ms + self._times.fetch_slack_ms) / 1_000
        answer = await self._peer(target).fetches.call(API, VERSION, request, timeout_s=timeout_s)
        return fetch_found(answer, target)

    async def call(self, target: str, api: str, version: int, request: Any) -> Any:
        peer = self._peer(target)
        calls = peer.markers if api == MARKERS else peer.questions if api == QUESTIONS else peer.calls
        return await calls.call(api, version, request, timeout_s=self._times.call_ms / 1_000)

    async def forward(
        self,
        target: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
    ) -> Answer:
        self.forwarded_count += 1
        return await self._peer(target).forwards.ask(method, path, headers, body, timeout_s=timeout_s)

    async def close(self) -> None:
        """Whatever waits for an answer is told that there will be none."""
        self._is_closed = True
        self._patience.end()
        peers = list(self._peers.values())
        await asyncio.gather(*(peer.sender.close() for peer in peers))
        await asyncio.gather(
            *(
                calls.close()
                for peer in peers
                for calls in (peer.fetches, peer.markers, peer.appends, peer.questions, peer.calls)
            )
        )
        for peer in peers:
            peer.messages.close()
            peer.control.close()
            peer.orders.close()
            peer.forwards.close()

    async def _call_append(self, target: str, api: str, version: int, request: Any) -> Any:
        calls = self._peer(target).appends
        return await calls.call(api, version, request, timeout_s=self._times.call_ms / 1_000)

    async def _ask_done(self, target: str, requests: Requests, path: str, body: bytes) -> Done:
        data = await requests.ask(path, body, timeout_s=self._times.ask_ms / 1_000)
        return decoded(DONES, data, target)

    async def _shown(self, target: str, path: str, timeout_ms: int) -> bytes:
        """To a client."""
        return await self._peer(target).orders.ask(path, b"", timeout_s=timeout_ms / 1_000, method="GET")

    async def _look(self, target: str, path: str, timeout_ms: int) -> bytes:
        return await self._peer(target).control.ask(path, b"", timeout_s=timeout_ms / 1_000, method="GET")

    def _peer(self, target: str) -> _Peer:
        peer = self._peers.get(target)
        if peer is None:
            messages = self._requests(target, kept_count_max=1)
            peer = self._peers[target] = _Peer(
                messages=messages,
                sender=Sender(target, messages, timeout_s=self._times.message_ms / 1_000),
                control=self._requests(target, kept_count_max=_KEPT_COUNT_MAX),
                orders=self._requests(target, kept_count_max=_KEPT_COUNT_MAX),
                fetches=self._calls(target),
                markers=self._calls(target),
                appends=self._calls(target),
                questions=self._calls(target),
                calls=self._calls(target),
                forwards=Forwards(self._dialler, target, self._patience),
            )
        return peer

    def _requests(self, target: str, *, kept_count_max: int) -> Requests:
        return Requests(
            self._dialler, target, self._patience, kept_count_max=kept_count_max, chance=self._chance
        )

    def _calls(self, target: str) -> Calls:
        connect_s = self._times.connect_ms / 1_000
        return Calls(self._dialler, target, self._patience, connect_s=connect_s, chance=self._chance)
