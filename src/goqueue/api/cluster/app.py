"""The control plane between nodes as an ASGI application.

A request is verified by its header before its body is read: nobody without the secret makes this node hold a body, or carry
anything out. The answer to what was admitted is signed in turn, and nothing else: whoever holds a request back must not get a signature for
its header by sending that with another one. Only the health of the cluster is told to anybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.api.cluster.client_requests import ClientRequests
from goqueue.api.http.asgi import JSON, ClientGone, Event, Header, Receive, Send, read_body, send_bytes
from goqueue.api.http.decoding import decode
from goqueue.api.http.errors import InternalError, WrongMethod, error_body
from goqueue.model.cluster_errors import Unauthenticated, WrongCluster
from goqueue.model.errors import GoQueueError, InvalidRequest, InvariantViolation, RouteNotFound, TimedOut
from goqueue.node.clock import Clock
from goqueue.node.cluster import exchange
from goqueue.node.cluster.exchange import ANSWER_HEADER, ENCODER, SIGNATURE_HEADER
from goqueue.node.cluster.ports import ClusterService
from goqueue.node.cluster.secret import Claim, Secret

logger = logging.getLogger(__name__)

APPEND_BYTES_MAX = 256 * 1024 * 1024  # it may hold a snapshot of the whole catalogue
NEWS_BYTES_MAX = 32 * 1024 * 1024  # it may name every partition of a node
BODY_BYTES_MAX = 1024 * 1024
BODY_S_MAX = 60.0  # for all of it: a peer that sends byte by byte does not hold a place for ever
_PREFIX = "/v1"
_EMPTY: bytes = b""
_JSON: tuple[Header, ...] = ((b"content-type", JSON.encode()),)

Endpoint = Callable[[str, bytes], Awaitable[bytes]]  # who asks, the body; the answer


@dataclass(frozen=True, slots=True)
class _Route:
    endpoint: Endpoint
    status: int = 200
    bytes_max: int = BODY_BYTES_MAX
    is_open: bool = False  # to anybody


@dataclass(slots=True)
class _Asked:
    """A request as it is known by its header."""

    header: str
    may_sign: bool = False  # the answer


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    headers: tuple[Header, ...] = _JSON
    may_go_on: bool = False  # whatever the status is: the body has been read


class ClusterApp:
    """`cluster_id` gives None until the node knows it; `on_broken` is told of a broken invariant. What is not of the control
    plane is a request of a client of another node."""

    def __init__(
        self,
        service: ClusterService,
        *,
        secret: Secret,
        name: str,
        cluster_id: Callable[[], str | None],
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        client_requests: ClientRequests | None = None,
    ) -> None:
        self._service = service
        self._client_requests = client_requests
        self._secret = secret
        self._name = name
        self._cluster_id = cluster_id
        self._clock = clock
        self._on_broken = on_broken
        self._routes: dict[str, dict[str, _Route]] = {
            exchange.VOTE: {"POST": _Route(self._receive, status=204)},
            exchange.APPEND: {"POST": _Route(self._receive, status=204, bytes_max=APPEND_BYTES_MAX)},
            exchange.JOIN: {"POST": _Route(self._join, bytes_max=NEWS_BYTES_MAX)},
            exchange.HEARTBEAT: {"POST": _Route(self._beat)},
            exchange.LEAVE: {"POST": _Route(self._leave)},
            exchange.COMMAND: {"POST": _Route(self._execute, bytes_max=NEWS_BYTES_MAX)},
            exchange.STATE: {"GET": _Route(self._told(service.state))},
            exchange.METADATA: {"GET": _Route(self._told(service.metadata))},
            exchange.NODES: {"GET": _Route(self._told(lambda: {"nodes": service.nodes()}))},
            exchange.CONFIRMED: {"GET": _Route(self._confirmed)},
            exchange.COPYING: {"GET": _Route(self._told(service.copying))},
            exchange.HEALTH: {"GET": _Route(self._told(service.health), is_open=True)},
        }

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        asked = _Asked(_signature(scope))
        try:
            answer = await self._answer(scope, receive, asked)
        except GoQueueError as error:
            answer = _refusal(error)
        except ClientGone:
            return
        except InvariantViolation as error:
            self._on_broken(error)
            answer = _refusal(InternalError())
        except Exception:  # the last place where a bug can still become an answer
            logger.exception("request failed method=%s path=%r", scope["method"], scope["path"])
            answer = _refusal(InternalError())
        await self._send(send, asked, answer)

    async def _answer(self, scope: Event, receive: Receive, asked: _Asked) -> _Answer:
        method: str = scope["method"]
        path = scope["raw_path"].decode("latin-1")
        if self._client_requests is not None and path.removeprefix(_PREFIX) not in self._routes:
            return await self._hand_on(self._client_requests, scope, receive, asked)
        claim = self._admit(asked, method, path) if asked.header else None
        route = self._find(method, path)
        if claim is None:
            if not route.is_open:
                raise _unsigned()
            return _Answer(route.status, await route.endpoint("", _EMPTY))
        body = await _read(scope, receive, route.bytes_max)
        claim.check_body(body)
        return _Answer(route.status, await route.endpoint(claim.source, body))

    async def _hand_on(
        self, requests: ClientRequests, scope: Event, receive: Receive, asked: _Asked
    ) -> _Answer:
        target = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        claim = self._admit(asked, scope["method"], target)
        body = await _read(scope, receive, requests.bytes_max)
        claim.check_body(body)
        status, headers, answer = await requests.answer(claim.source, scope, body, receive)
        return _Answer(status, answer, tuple(headers), may_go_on=True)

    def _find(self, method: str, path: str) -> _Route:
        routes = self._routes.get(path.removeprefix(_PREFIX))
        if routes is None:
            raise RouteNotFound(f"there is nothing at {path!r} on the cluster's listener", path=path)
        route = routes.get(method)
        if route is None:
            raise WrongMethod(method, list(routes))
        return route

    def _admit(self, asked: _Asked, method: str, path: str) -> Claim:
        if not asked.header:
            raise _unsigned()
        try:
            claim = self._secret.admit(
                asked.header,
                method,
                path,
                target=self._name,
                now_ms=self._clock.now_ms(),
                cluster_id=self._cluster_id(),
            )
        except (
            WrongCluster
        ):  # no node of this cluster carries it out, so it is true whoever hears it; it has to be believed
            asked.may_sign = True
            raise
        asked.may_sign = True
        return claim

    async def _send(self, send: Send, asked: _Asked, answer: _Answer) -> None:
        headers = list(answer.headers)
        if asked.may_sign:
            signature = self._secret.sign_answer(asked.header, answer.status, answer.body)
            headers.append((ANSWER_HEADER.encode(), signature.encode()))
        if (
            answer.status >= 400 and not answer.may_go_on
        ):  # of its body some may be left; and whoever guesses has to come again
            headers.append((b"connection", b"close"))
        await send_bytes(send, answer.status, answer.body, headers)

    # the endpoints

    async def _receive(self, source: str, body: bytes) -> bytes:
        message = decode(exchange.MESSAGES, body)
        _check_speaker(source, message.source)
        if message.target != self._name:
            raise InvalidRequest(
                f"the message is for node {message.target!r}, and this is {self._name!r}",
                target=message.target,
            )
        self._service.receive(message)
        return _EMPTY

    async def _join(self, source: str, body: bytes) -> bytes:
        join = decode(exchange.JOINS, body)
        _check_speaker(source, join.name)
        return ENCODER.encode(await self._service.join(join))

    async def _beat(self, source: str, body: bytes) -> bytes:
        beat = decode(exchange.BEATS, body)
        _check_speaker(source, beat.name)
        return ENCODER.encode(await self._service.beat(beat))

    async def _leave(self, source: str, body: bytes) -> bytes:
        """A node may ask for another: one that is dead cannot ask for itself."""
        return ENCODER.encode(await self._service.leave(source, decode(exchange.LEAVES, body).name))

    async def _execute(self, source: str, body: bytes) -> bytes:
        return ENCODER.encode(await self._service.execute(source, decode(exchange.COMMANDS, body)))

    async def _confirmed(self, source: str, body: bytes) -> bytes:
        return ENCODER.encode(await self._service.confirmed())

    def _told(self, tell: Callable[[], Any]) -> Endpoint:
        async def endpoint(source: str, body: bytes) -> bytes:
            return ENCODER.encode(tell())

        return endpoint


async def _read(scope: Event, receive: Receive, bytes_max: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_S_MAX):
            return await read_body(scope, receive, bytes_max)
    except TimeoutError:
        raise TimedOut(f"the body did not come within {BODY_S_MAX:g} s") from None


def _unsigned() -> Unauthenticated:
    return Unauthenticated(f"the request has no {SIGNATURE_HEADER} header; nodes sign what they ask")


def _signature(scope: Event) -> str:
    for name, value in scope["headers"]:
        if name == SIGNATURE_HEADER.encode():
            return str(value.decode("latin-1"))
    return ""


def _check_speaker(source: str, name: str) -> None:
    if source != name:
        raise Unauthenticated(
            f"the request is signed by node {source!r} and speaks for {name!r}; a node speaks for itself",
            source=source,
            name=name,
        )


def _refusal(error: GoQueueError) -> _Answer:
    body = error_body(error)
    allow = ((b"allow", error.allow.encode()),) if isinstance(error, WrongMethod) else ()
    return _Answer(body.status, msgspec.json.encode(body), (*_JSON, *allow))
