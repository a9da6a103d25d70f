"""One HTTP/1.1 connection to another node: one request at a time, kept alive as long as both sides like.

After any error, and after a time-out or a cancellation in the middle of a request, the connection is of no use any more and is
closed: what comes next on it might be the answer to something else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httptools

from goqueue.model.cluster_errors import PeerUnreachable

ANSWER_BYTES_MAX = 64 * 1024 * 1024
_HEAD_BYTES_MAX = 64 * 1024
_JOINED_BYTES_MAX = 64 * 1024
_READ_BYTES = 256 * 1024


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class HttpLink:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: str,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._peer = peer
        self._host = "{}:{}".format(*(writer.get_extra_info("peername") or ("peer", 0))[:2])
        self._answer_bytes_max = answer_bytes_max
        self._is_open = True

    @property
    def is_usable(self) -> bool:
        """False also where the other side has closed it meanwhile."""
        return self._is_open and not self._reader.at_eof() and not self._writer.is_closing()

    async def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Whoever calls it bounds it in time."""
        parsed = _Parsed(self._answer_bytes_max)
        is_done = False
        try:
            head = self._head(method, path, body, headers)
            if len(body) <= _JOINED_BYTES_MAX:
                self._writer.write(head + body)
            else:
                self._writer.writelines((head, body))
            await self._writer.drain()
            answer = await self._receive(parsed)
            is_done = True
        except (OSError, httptools.HttpParserError, _Unfit) as error:
            raise _broken(self._peer, error) from error
        finally:
            del parsed.parser  # which knows its owner: nothing is left to the garbage collector
            if not is_done or not parsed.may_go_on:
                self.abort()
        return answer

    def abort(self) -> None:
        self._is_open = False
        self._writer.transport.abort()

    def _head(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _receive(self, parsed: _Parsed) -> HttpAnswer:
        parser = parsed.parser
        while not parsed.is_complete:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise ConnectionResetError("it was closed by the other side")
            if parsed.is_head:
                parsed.head_bytes += len(data)
            parser.feed_data(data)
            parsed.check()
        return HttpAnswer(parsed.status, parsed.headers, b"".join(parsed.chunks))


async def open_http(
    host: str,
    port: int,
    peer: str,
    *,
    timeout_s: float,
    context: ssl.SSLContext | None = None,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
) -> HttpLink:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, UnicodeError, OverflowError) as error:
        raise unreachable(peer, host, port, error) from error
    return HttpLink(reader, writer, peer, answer_bytes_max=answer_bytes_max)


def unreachable(peer: str, host: str, port: int, error: Exception) -> PeerUnreachable:
    reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return PeerUnreachable(f"node {peer!r} cannot be reached at {host}:{port}: {reason}", node=peer)


def _broken(peer: str, error: Exception) -> PeerUnreachable:
    reason = str(error) or type(error).__name__
    return PeerUnreachable(f"the connection to node {peer!r} broke: {reason}", node=peer)


class _Unfit(Exception):
    """An answer that is HTTP, but not one that we take."""


class _Parsed:
    """What the parser calls, and what it has found so far. Errors are kept until it is done: it would hide them."""

    def __init__(self, answer_bytes_max: int) -> None:
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.head_bytes = 0
        self.is_head = True
        self.is_complete = False
        self.may_go_on = False
        self.status = 0
        self.parser = httptools.HttpResponseParser(self)
        self._bytes_left = answer_bytes_max
        self._bytes_max = answer_bytes_max

    def on_message_begin(self) -> None:
        if self.is_complete:  # nobody has asked for a second answer
            self.may_go_on = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.is_head = False

    def on_body(self, body: bytes) -> None:
        self._bytes_left -= len(body)
        if self._bytes_left >= 0 and not self.is_complete:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        self.status = self.parser.get_status_code()
        self.may_go_on = self.parser.should_keep_alive()  # it knows only until the message is over

    def check(self) -> None:
        announced = self.headers.get("content-length", "0")
        if self._bytes_left < 0 or not announced.isdigit() or int(announced[:19]) > self._bytes_max:
            raise _Unfit(f"an answer may have {self._bytes_max} bytes, and it has more")
        if self.is_head and self.head_bytes > _HEAD_BYTES_MAX:
            raise _Unfit(f"the head of an answer may have {_HEAD_BYTES_MAX} bytes, and it has more")
