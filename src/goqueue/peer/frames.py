"""One connection to another node that carries Kafka frames: requests go out, answers come back in the same order.

Several requests may be under way. One that gets no answer in time ends the connection, and with it all others: answers come in
order, so nothing behind it would come either, and a peer that has gone without a word is noticed in no other way. Of a request that is
cancelled the answer is dropped; but it has to come, in the same time.

The records of an answer are a view of the frame that they came in.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import struct
from collections import deque
from typing import Any, NamedTuple, cast

from goqueue.model.cluster_errors import PeerUnreachable, Unauthenticated
from goqueue.node.cluster.login import MECHANISM, ClientLogin
from goqueue.peer.http import unreachable
from goqueue.wire.codec import (
    Malformed,
    Output,
    is_flexible,
    read_uvarint,
    request_writer,
    response_reader,
)
from goqueue.wire.frames import Frame, FrameReader
from goqueue.wire.schema import api_key, request_schema

ANSWER_BYTES_MAX = 256 * 1024 * 1024
UNDER_WAY_COUNT_MAX = 256
_LOGIN_BYTES_MAX = 64 * 1024  # of an answer before the other side has proven who it is
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_API_VERSIONS = "api_versions"
_TAG_COUNT_MAX = 1_000


class _Asked(NamedTuple):
    """A request that is under way."""

    correlation_id: int
    api: str
    version: int
    until_s: float
    answer: asyncio.Future[Any]  # of whatever API it is


class FrameLink(asyncio.BufferedProtocol):
    """`scratch` may be shared by all links of an event loop."""

    def __init__(
        self, peer: str, client_id: str, scratch: bytearray, *, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> None:
        self._peer = peer
        self._client_id = client_id.encode()
        self._answer_bytes_max = answer_bytes_max
        self._scratch = scratch
        self._frames = FrameReader(_LOGIN_BYTES_MAX, scratch)
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._ended: str | None = None  # why

    @property
    def is_usable(self) -> bool:
        return self._ended is None and self._transport is not None and not self._transport.is_closing()

    async def log_in(self, login: ClientLogin, timeout_s: float) -> None:
        """Both sides know who the other is, or the connection ends."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._log_in(login)
        except BaseException as error:
            self.abort("no answer to the login in time" if isinstance(error, TimeoutError) else str(error))
            if isinstance(error, TimeoutError):
                raise self._unreachable() from None
            raise
        self._frames = FrameReader(self._answer_bytes_max, self._scratch)

    async def call(self, api: str, version: int, request: Any, *, timeout_s: float) -> Any:
        """One request, of the classes of `goqueue.wire.schema`, and its answer."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        reason = f"no answer to {api} within {timeout_s:g} s"
        try:
            async with asyncio.timeout_at(until_s):
                return await self._call(api, version, request, until_s)
        except TimeoutError:
            self.abort(reason)
            raise self._unreachable() from None
        except asyncio.CancelledError:
            if self._asked:
                loop.call_at(until_s, self._end_if_unanswered, until_s, reason)
            raise

    def abort(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended is not None:
            return
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except (Malformed, IndexError, ValueError, struct.error) as error:
            self.abort(f"an answer cannot be read: {error}")
            return
        if self._frames.fault is not None:
            self.abort(self._frames.fault)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended is None:
            self._ended = str(error) if error is not None else "it was closed by the other side"
        self._can_write.set()
        self._fail_all()

    # requests and answers

    async def _log_in(self, login: ClientLogin) -> None:
        hello = await self._call("sasl_handshake", 1, _message("sasl_handshake", mechanism=MECHANISM))
        if hello.error_code:
            known = ", ".join(hello.mechanisms) or "none"
            raise Unauthenticated(
                f"node {self._peer!r} does not know the login {MECHANISM}, but {known}", node=self._peer
            )
        challenge = await self._authenticate(login.first())
        login.check(await self._authenticate(login.proof(challenge)))

    async def _authenticate(self, data: bytes) -> bytes:
        answer = await self._call("sasl_authenticate", 2, _message("sasl_authenticate", auth_bytes=data))
        if answer.error_code:
            raise Unauthenticated(
                f"node {self._peer!r} refuses the login: {answer.error_message}", node=self._peer
            )
        return bytes(answer.auth_bytes)

    async def _call(self, api: str, version: int, request: Any, until_s: float = math.inf) -> Any:
        while not self._can_write.is_set():
            await self._can_write.wait()
        if self._transport is None or not self.is_usable:
            raise self._unreachable()
        if len(self._asked) >= UNDER_WAY_COUNT_MAX:
            raise PeerUnreachable(
                f"{UNDER_WAY_COUNT_MAX} requests to node {self._peer!r} wait for an answer; no more are sent",
                node=self._peer,
            )
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        pieces = self._encoded(api, version, request)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(self._correlation_id, api, version, until_s, answer))
        self._transport.writelines(pieces)
        return await answer

    def _encoded(self, api: str, version: int, request: Any) -> list[bytes | memoryview]:
        out = Output(_LENGTH.size)
        out += _HEADER.pack(api_key(api), version, self._correlation_id, len(self._client_id))
        out += self._client_id
        if is_flexible(api, version):
            out += b"\0"
        request_writer(api, version)(out, request)
        inserted = sum(len(chunk) for _, chunks in out.cuts for chunk in chunks)
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size + inserted)
        return out.pieces() if out.cuts else [bytes(out)]

    def _take(self, frame: Frame) -> None:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            raise Malformed(f"it is to request {correlation_id}, which is not the next")
        asked = self._asked.popleft()
        if asked.answer.done():  # nobody waits for it any more
            return
        view = memoryview(frame)
        try:
            has_tags = asked.api != _API_VERSIONS and is_flexible(asked.api, asked.version)
            at = _skip_tags(view, _LENGTH.size) if has_tags else _LENGTH.size
            answer = response_reader(asked.api, asked.version)(view, at)
        except (Malformed, IndexError, ValueError):
            self._asked.appendleft(asked)  # it fails with the others
            raise
        asked.answer.set_result(answer)

    def _end_if_unanswered(self, until_s: float, reason: str) -> None:
        if any(one.until_s <= until_s for one in self._asked):
            self.abort(reason)

    def _fail_all(self) -> None:
        asked, self._asked = self._asked, deque()
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(self._unreachable())

    def _unreachable(self) -> PeerUnreachable:
        reason = self._ended or "it is closing"
        return PeerUnreachable(f"the connection to node {self._peer!r} broke: {reason}", node=self._peer)


async def open_frames(
    host: str,
    port: int,
    peer: str,
    login: ClientLogin,
    *,
    client_id: str,
    scratch: bytearray,
    timeout_s: float,
    context: ssl.SSLContext | None = None,
) -> FrameLink:
    """Connected and logged in."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, link = await loop.create_connection(
                lambda: FrameLink(peer, client_id, scratch), host, port, ssl=context
            )
    except (OSError, UnicodeError, OverflowError) as error:
        raise unreachable(peer, host, port, error) from error
    await link.log_in(login, timeout_s)
    return link


def _message(api: str, **fields: Any) -> Any:  # its class is made at run time
    schema = request_schema(api)
    return schema.classes[schema.root](**fields)


def _skip_tags(data: memoryview, at: int) -> int:
    """Headers have none that a client must know."""
    count, at = read_uvarint(data, at)
    if count > _TAG_COUNT_MAX:
        raise ValueError(f"{count} tagged fields in a header")
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    return at
