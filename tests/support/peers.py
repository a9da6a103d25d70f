"""Nodes that consist of nothing but their cluster listener and their links to each other; the test plays what is behind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random
from typing import Any

from goqueue.api.cluster.app import ClusterApp
from goqueue.api.cluster.client_requests import ClientRequests
from goqueue.api.cluster.frame_side import FrameSide
from goqueue.api.cluster.http_side import HttpSide
from goqueue.api.cluster.listener import ClusterListener
from goqueue.api.http.connection import Connection as HttpConnection
from goqueue.api.kafka.call import Api
from goqueue.api.kafka.connection import Connection as FrameConnection
from goqueue.api.kafka.dispatch import Dispatch
from goqueue.api.kafka.peer_login import PeerLogin, cluster_apis
from goqueue.core.cluster.commands import Order
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.raft.messages import Message
from goqueue.node.cluster.ports import (
    Beat,
    BeatAnswer,
    ClusterHealth,
    ClusterState,
    Confirmed,
    Copying,
    Done,
    Join,
    NodeView,
)
from goqueue.node.cluster.secret import Secret
from goqueue.peer.dialling import Credentials, LinkTimes
from goqueue.peer.links import PeerLinks
from goqueue.sim.ids import SimIds
from goqueue.wire.frames import SCRATCH_BYTES

KEY = b"a secret that all nodes share"
ENDPOINTS = Endpoints("127.0.0.1:8080", "127.0.0.1:9092", "127.0.0.1:7000")
NOW_MS = 1_700_000_000_000
# Longer than a test: on a real loop, a machine that is busy with something else is not to end a request.
PATIENT = LinkTimes(
    connect_ms=60_000, message_ms=60_000, beat_ms=60_000, ask_ms=60_000, call_ms=60_000, fetch_slack_ms=60_000
)


class StillClock:
    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms


class PlayedService:
    """Notes what it is asked; `error` is what it then raises instead of an answer, `gate` what it waits for."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Message]] = []
        self.asked: list[tuple[str, object]] = []
        self.error: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.arrived = asyncio.Event()

    def receive(self, message: Message) -> None:
        self.received.append((message.source, message))
        self.arrived.set()

    async def until_received(self, count: int) -> None:
        while len(self.received) < count:
            self.arrived.clear()
            await self.arrived.wait()

    async def until_asked(self, count: int) -> None:
        while len(self.asked) < count:
            self.arrived.clear()
            await self.arrived.wait()

    async def join(self, join: Join) -> Done:
        return await self._done(join.name, join)

    async def beat(self, beat: Beat) -> BeatAnswer:
        await self._done(beat.name, beat)
        return BeatAnswer("n1", 7, is_known=True, is_fenced=False)

    async def leave(self, source: str, name: str) -> Done:
        return await self._done(source, name)

    async def execute(self, source: str, command: Order) -> Done:
        return await self._done(source, command)

    async def confirmed(self) -> Confirmed:
        return Confirmed((await self._done("", "confirmed")).index)

    def state(self) -> ClusterState:
        return ClusterState("n1", "c1", "leader", 3, "n1", ["n1"], 5, 5, 6)

    def nodes(self) -> list[NodeView]:
        return [
            NodeView("n1", 1, "alive", "alive", True, True, ENDPOINTS, "", "0", "i", None, 0, 0),
        ]

    def copying(self) -> list[Copying]:
        return []

    def metadata(self) -> dict[str, Any]:
        return {"topics": []}

    def health(self) -> ClusterHealth:
        return ClusterHealth("ok", "n1", 0, 0, [], ["n2"])

    async def _done(self, source: str, what: object) -> Done:
        self.asked.append((source, what))
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Done(len(self.asked), [])


class Station:
    """One node. `apis` are what it serves to others by Kafka's protocol, `client_requests` who answers what it is handed on."""

    def __init__(
        self,
        name: str,
        *,
        key: bytes = KEY,
        cluster_id: str | None = "c1",
        apis: list[Api] | None = None,
        clock: StillClock | None = None,
        context: ssl.SSLContext | None = None,
        connection_count_max: int = 50,
        client_requests: ClientRequests | None = None,
    ) -> None:
        self.name = name
        self._client_requests = client_requests
        self.cluster_id = cluster_id
        self.secret = Secret(key)
        self.clock = clock or StillClock()
        self.ids = SimIds(Random(name))
        self.service = PlayedService()
        self.broken: list[BaseException] = []
        self.address: tuple[str, int] | None = None
        self._apis = apis or []
        self._context = context
        self._connection_count_max = connection_count_max
        self._listener: ClusterListener | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Station:
        login = PeerLogin(
            self.secret,
            name=self.name,
            cluster_id=lambda: self.cluster_id,
            incarnation_of=lambda _: None,
            ids=self.ids,
        )
        dispatch = Dispatch(cluster_apis(self._apis, login))
        scratch = bytearray(SCRATCH_BYTES)
        app = ClusterApp(
            self.service,
            secret=self.secret,
            name=self.name,
            cluster_id=lambda: self.cluster_id,
            clock=self.clock,
            on_broken=self.broken.append,
            client_requests=self._client_requests,
        )
        self._listener = ClusterListener(
            host=host,
            port=port,
            http=HttpSide(
                app,
                lambda config, state, serial: HttpConnection(
                    config, state, serial=serial, connection_count_max=self._connection_count_max
                ),
            ),
            frames=FrameSide(
                lambda made, lost: FrameConnection(
                    dispatch,
                    frame_bytes_max=1 << 20,
                    scratch=scratch,
                    on_made=made,
                    on_lost=lost,
                    on_broken=self.broken.append,
                    needs_login=True,
                ),
                connection_count_max=self._connection_count_max,
            ),
            context=self._context,
        )
        self.address = await self._listener.start()
        return self

    async def stop(self, grace_s: float = 0.1) -> None:
        if self._listener is not None:
            await self._listener.stop(grace_s)


class Links(PeerLinks):
    """Of a node that only asks."""

    def __init__(
        self,
        name: str = "n2",
        *,
        address_of: Callable[[str], tuple[str, int] | None],
        key: bytes = KEY,
        cluster_id: str | None = "c1",
        clock: StillClock | None = None,
        times: LinkTimes = PATIENT,
        context: ssl.SSLContext | None = None,
        number: int = 2,
    ) -> None:
        super().__init__(
            Credentials(
                name,
                lambda: cluster_id,
                lambda: None,
                Secret(key),
                clock or StillClock(),
                SimIds(Random(f"links of {name}")),
            ),
            number=lambda: number,
            address_of=address_of,
            chance=Random(1).random,
            times=times,
            context=context,
        )
