"""The REST API as an ASGI application: finds the route, decodes, calls, encodes, and turns errors into answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Struct

from goqueue.api.http.asgi import ClientGone, Event, Receive, Send, read_body, send_bytes, send_json
from goqueue.api.http.call import Call, NoBody, Reply
from goqueue.api.http.decoding import decode
from goqueue.api.http.errors import ENCODER, InternalError, send_error
from goqueue.api.http.exchange import Request
from goqueue.api.http.openapi import build_document
from goqueue.api.http.publish import publish
from goqueue.api.http.query import read_query
from goqueue.api.http.read import read
from goqueue.api.http.relay import Relay
from goqueue.api.http.route import AnyRoute, Direct, Router, split_path
from goqueue.api.http.routes import ROUTES
from goqueue.model.errors import GoQueueError, InvariantViolation
from goqueue.node.clock import Clock
from goqueue.node.node import Node

logger = logging.getLogger(__name__)

_NO_BODY = NoBody()


class RestApi:
    def __init__(self, node: Node, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._router = Router(ROUTES)
        # Made when somebody asks: it takes longer than all the rest of a start.
        self._document = cache(partial(build_document, ROUTES, node.config))
        self._decoders: dict[tuple[str, str], msgspec.json.Decoder[Struct]] = {
            (route.method, route.path): msgspec.json.Decoder(route.body)
            for route in ROUTES
            if route.body is not NoBody
        }
        self._relay = (
            None if node.forwarding is None else Relay(node, node.forwarding, self._dispatch, self._ask)
        )

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except GoQueueError as error:
            await send_error(send, error)
        except ClientGone:
            pass
        except InvariantViolation as error:
            self._node.fail(error)
            await send_error(send, InternalError())
        except Exception:  # the last place where a bug can still become an answer
            logger.exception("request failed method=%s path=%r", scope["method"], scope["path"])
            await send_error(send, InternalError())

    async def _answer(self, scope: Event, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        segments = split_path(scope["raw_path"])
        # The two routes that carry the messages skip the router; it has them too, for their other methods.
        match segments:
            case ["topics", topic, "messages"] if method == "POST":
                if self._relay is not None:
                    await self._node.catching_up.until_known(topic)
                await publish(self._node, {"topic": topic}, scope, receive, send)
            case ["topics", topic, "partitions", partition, "messages"] if (
                method == "GET" and self._relay is None
            ):
                await read(self._node, {"topic": topic, "partition": partition}, scope, receive, send)
            case _:
                route, path = self._router.find(method, segments)
                request = Request(route, path, scope, receive, send)
                await (self._dispatch(request) if self._relay is None else self._relay.answer(request))

    async def _dispatch(self, request: Request) -> None:
        route, path, scope = request.route, request.path, request.scope
        receive, send = request.receive, request.send
        if isinstance(route.endpoint, Direct):
            await route.endpoint.run(self._node, path, scope, receive, send)
            return
        query = read_query(scope["query_string"], route.query)
        body = await self._body(route, scope, receive)
        answer = await self._ask(route, path, query, body)
        if not isinstance(answer, Reply):
            await send_json(send, route.status, ENCODER.encode(answer))
        elif isinstance(answer.body, bytes):
            content_type = (b"content-type", answer.content_type.encode())
            await send_bytes(send, answer.status, answer.body, [content_type])
        else:
            await send_json(send, answer.status, ENCODER.encode(answer.body))

    async def _ask(self, route: AnyRoute, path: Mapping[str, str], query: Struct, body: Struct) -> Any:
        if isinstance(route.endpoint, Direct):
            raise InvariantViolation(f"{route.path} sends its answer by itself")
        return await route.endpoint(Call(self._node, self._clock, self._document, path, query, body))

    async def _body(self, route: AnyRoute, scope: Event, receive: Receive) -> Struct:
        decoder = self._decoders.get((route.method, route.path))
        if decoder is None:
            return _NO_BODY
        data = await read_body(scope, receive, self._node.config.limits.request_bytes_max)
        return decode(decoder, data)
