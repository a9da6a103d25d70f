"""Who this node is to the others, where they are, and how a connection to one of them is made."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec import Struct

from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.node.clock import Clock
from goqueue.node.cluster.login import ClientLogin
from goqueue.node.cluster.secret import Secret
from goqueue.node.ids import Ids
from goqueue.peer.frames import FrameLink, open_frames
from goqueue.peer.http import HttpLink, open_http
from goqueue.wire.frames import SCRATCH_BYTES


class LinkTimes(Struct, frozen=True):
    """How long an answer may take."""

    connect_ms: int = 2_000  # a login included
    message_ms: int = 5_000  # of Raft; it is answered as soon as it has arrived
    beat_ms: int = 5_000
    confirm_ms: int = 1_000  # then there may be another controller
    ask_ms: int = 30_000  # joins and commands: they wait for the quorum
    call_ms: int = 30_000
    fetch_slack_ms: int = 5_000  # more than the fetch was told to wait


@dataclass(frozen=True, slots=True)
class Credentials:
    """`cluster_id` gives None until the node knows it, `incarnation` to who is no node."""

    name: str
    cluster_id: Callable[[], str | None]
    incarnation: Callable[[], str | None]
    secret: Secret
    clock: Clock
    ids: Ids

    def sign(self, method: str, path: str, body: bytes, target: str) -> str:
        return self.secret.sign(
            method,
            path,
            body,
            source=self.name,
            target=target,
            cluster_id=self.cluster_id(),
            timestamp_ms=self.clock.now_ms(),
            nonce=self.ids.fresh(),
        )

    def login(self, target: str) -> ClientLogin:
        return ClientLogin(
            self.secret,
            source=self.name,
            target=target,
            cluster_id=self.cluster_id(),
            nonce=self.ids.fresh(),
            incarnation=self.incarnation(),
        )


class Dialler:
    """`address_of` is asked anew for each connection: nodes move. `context` is for TLS; it also checks the other's certificate."""

    def __init__(
        self,
        credentials: Credentials,
        address_of: Callable[[str], tuple[str, int] | None],
        times: LinkTimes,
        *,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.credentials = credentials
        self._address_of = address_of
        self._connect_s = times.connect_ms / 1_000
        self._context = context
        self._scratch = bytearray(SCRATCH_BYTES)

    async def http(self, target: str) -> HttpLink:
        host, port = self._address(target)
        return await open_http(host, port, target, timeout_s=self._connect_s, context=self._context)

    async def frames(self, target: str) -> FrameLink:
        host, port = self._address(target)
        return await open_frames(
            host,
            port,
            target,
            self.credentials.login(target),
            client_id=self.credentials.name,
            scratch=self._scratch,
            timeout_s=self._connect_s,
            context=self._context,
        )

    def _address(self, target: str) -> tuple[str, int]:
        address = self._address_of(target)
        if address is None:
            raise PeerUnreachable(f"no address of node {target!r} is known", node=target)
        return address


class Patience:
    """Bounds in time what is under way, and can end all of it at once."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Timeout, None] = {}
        self._is_over = False

    @asynccontextmanager
    async def within(self, seconds: float, target: str) -> AsyncIterator[None]:
        if self._is_over:
            raise PeerUnreachable(f"this node stops; it asks node {target!r} nothing more", node=target)
        try:
            async with asyncio.timeout(seconds) as limit:
                self._running[limit] = None
                try:
                    yield
                finally:
                    del self._running[limit]
        except TimeoutError:
            reason = "this node stops" if self._is_over else f"no answer within {seconds:g} s"
            raise PeerUnreachable(f"node {target!r}: {reason}", node=target) from None

    def end(self) -> None:
        self._is_over = True
        now_s = asyncio.get_running_loop().time()
        for limit in self._running:
            if not limit.expired():
                limit.reschedule(now_s)
