"""Requests that clients have sent to other nodes and that belong to this one: what its REST API answers goes back whole."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.api.cluster.node_calls import CONTENT_TYPE, NodeCalls
from goqueue.api.http.asgi import Application, ClientGone, Event, Header, Receive
from goqueue.api.http.exchange import once_more
from goqueue.api.http.relay import PEER
from goqueue.node.other_nodes import PREFIX


class HandedBack(NamedTuple):
    status: int
    headers: list[Header]
    body: bytes


class ClientRequests:
    """`bytes_max` is of a body: what a client sent may be longer when it is packed for another node."""

    def __init__(self, rest: Application, calls: NodeCalls, *, bytes_max: int) -> None:
        self._rest = rest
        self._calls = calls
        self.bytes_max = 4 * bytes_max + 1024 * 1024

    async def answer(self, source: str, scope: Event, body: bytes, receive: Receive) -> HandedBack:
        """`source` is the node that it came by; its signature was checked."""
        path = scope["raw_path"].decode("latin-1")
        if path.startswith(PREFIX):
            answer = await self._calls.answer(path, body, receive)
            return HandedBack(200, [(b"content-type", CONTENT_TYPE.encode())], answer)
        return await self._rest_answer(source, scope, body, receive)

    async def _rest_answer(self, source: str, scope: Event, body: bytes, receive: Receive) -> HandedBack:
        sent: list[Event] = []

        async def send(event: Event) -> None:
            sent.append(event)

        await self._rest({**scope, PEER: source}, once_more(body, receive), send)
        if len(sent) < 2:
            raise ClientGone
        headers = [one for one in sent[0]["headers"] if one[0] != b"content-length"]
        return HandedBack(sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]))
