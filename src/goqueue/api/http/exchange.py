"""A request that another node is to answer, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from goqueue.api.http.asgi import (
    ClientGone,
    Event,
    Receive,
    Send,
    read_body,
    send_bytes,
    wait_for_disconnect,
)
from goqueue.api.http.call import NoBody
from goqueue.api.http.route import AnyRoute
from goqueue.model.codes import Code
from goqueue.node.cluster.ports import Answer
from goqueue.node.forwarding import ELSEWHERE, Elsewhere

_DONE_NOTHING: Final = frozenset({code.value for code in ELSEWHERE} | {Code.NOT_READY.value})
_UNAVAILABLE: Final = 503
PARTITIONS_HEADER: Final = "goqueue-partitions"
_CARRIED_HEADERS: Final = ("content-type", "allow")


@dataclass(frozen=True, slots=True)
class Request:
    route: AnyRoute
    path: Mapping[str, str]
    scope: Event
    receive: Receive
    send: Send

    @property
    def target(self) -> str:
        """The path with its query, as it came."""
        path: str = self.scope["raw_path"].decode("latin-1")
        query: str = self.scope["query_string"].decode("latin-1")
        return f"{path}?{query}" if query else path

    @property
    def headers(self) -> dict[str, str]:
        """Those that say something about the body."""
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self.scope["headers"]
            if name == b"content-type"
        }

    @property
    def partitions(self) -> list[int]:
        """Of a request that came by another node: those that this one must lead, or else it refuses."""
        for name, value in self.scope["headers"]:
            if name == PARTITIONS_HEADER.encode():
                return [int(index) for index in value.split(b",") if index.isdigit()]
        return []

    async def body(self, bytes_max: int) -> bytes:
        if self.route.body is NoBody:
            return b""
        return await read_body(self.scope, self.receive, bytes_max)


class Refused(Exception):
    """Another node has refused its part; its answer is the client's."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer

    @property
    def sentence(self) -> str:
        return _told(self.answer).error


class _Told(msgspec.Struct, frozen=True):
    error: str = ""
    code: str = ""


def asked_about(partitions: Sequence[int]) -> dict[str, str]:
    """The headers that say so."""
    return {PARTITIONS_HEADER: ",".join(map(str, partitions))} if partitions else {}


def checked(answer: Answer) -> Answer:
    """Raises where the other node has refused, or is not the right one."""
    if is_elsewhere(answer):
        raise Elsewhere(answer)
    if answer.status >= 400:
        raise Refused(answer)
    return answer


def is_elsewhere(answer: Answer) -> bool:
    """Whether it says that nothing was done, and another node may do it, or the same one later."""
    return answer.status == _UNAVAILABLE and _told(answer).code in _DONE_NOTHING


def is_unknown(answer: Answer) -> bool:
    """Whether it says that a coordinator has written something which perhaps does not count."""
    return _told(answer).code == Code.COORDINATION_UNKNOWN.value


def _told(answer: Answer) -> _Told:
    try:
        return msgspec.json.decode(answer.body, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Told(f"another node answers {answer.status}")


async def send_answer(send: Send, answer: Answer) -> None:
    headers = [
        (name.encode(), answer.headers[name].encode("latin-1"))
        for name in _CARRIED_HEADERS
        if name in answer.headers
    ]
    await send_bytes(send, answer.status, answer.body, headers)


async def unless_gone(work: Awaitable[Answer], receive: Receive) -> Answer:
    """Who has hung up wants nothing: the other node hears of it, because this one hangs up, too."""
    asking = asyncio.ensure_future(work)
    watching = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        raise ClientGone
    finally:
        asking.cancel()
        watching.cancel()
        await asyncio.wait((asking, watching))


def once_more(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, for who reads it again; after it comes what comes."""
    is_read = False

    async def receive_again() -> Event:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
