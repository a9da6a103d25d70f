"""What a route is, and how a path finds one.

Paths are matched segment by segment in nested dicts. Each segment is percent-decoded once and never split again,
so an encoded separator stays inside the name it was sent in and is refused by the name check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from goqueue.api.http.asgi import JSON, Event, Receive, Send
from goqueue.api.http.call import Call, Reply
from goqueue.api.http.errors import Error, WrongMethod
from goqueue.api.http.where import Merge, Where
from goqueue.model.codes import Code
from goqueue.model.errors import RouteNotFound
from goqueue.node.node import Node

Q = TypeVar("Q", bound=Struct)
B = TypeVar("B", bound=Struct)
A = TypeVar("A")

Endpoint = Callable[[Call[Q, B]], Awaitable[A | Reply]]
Exchange = Callable[[Node, Mapping[str, str], Event, Receive, Send], Awaitable[None]]


def _nothing_to_merge() -> Merge[Any]:
    return Merge(lambda answers, _: answers[0])


@dataclass(frozen=True, slots=True)
class Direct:
    """An endpoint that decodes and sends by itself; the route's types then only describe what it does."""

    run: Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[Q, B, A]):
    method: str
    path: str
    summary: str
    endpoint: Endpoint[Q, B, A] | Direct
    query: type[Q]
    body: type[B]
    answer: type[A] | None  # None: text, or a document with a schema of its own
    errors: tuple[Code, ...] = ()
    status: int = 200
    error: type[Struct] = Error
    more_answers: Mapping[int, type[Struct]] = field(default_factory=dict)
    media_type: str = JSON
    description: str = ""
    where: Where = Where.ANYWHERE  # in a cluster
    merge: Merge[A] = field(default_factory=_nothing_to_merge)  # of what several nodes answer
    may_repeat: bool = False  # doing it twice is no more than doing it once


AnyRoute = Route[Any, Any, Any]  # each route has types of its own; the table holds all of them

_PREFIX = "v1"


@dataclass(slots=True)
class _Place:
    """Where a path may end or go on. A literal segment wins over a parameter."""

    literals: dict[str, _Place] = field(default_factory=dict)
    parameter: _Place | None = None
    name: str = ""  # of the parameter
    routes: dict[str, AnyRoute] = field(default_factory=dict)


class Router:
    def __init__(self, routes: tuple[AnyRoute, ...]) -> None:
        self._root = _Place()
        for route in routes:
            self._add(route)

    def find(self, method: str, segments: list[str]) -> tuple[AnyRoute, dict[str, str]]:
        """The route and the path parameters; HEAD finds the route of GET."""
        place = self._root
        parameters: dict[str, str] = {}
        for segment in segments:
            following = place.literals.get(segment)
            if following is None:
                following = place.parameter
                if following is None:
                    raise _not_found(segments)
                parameters[place.name] = segment
            place = following
        if not place.routes:
            raise _not_found(segments)
        route = place.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            raise WrongMethod(method, _allowed(place))
        return route, parameters

    def _add(self, route: AnyRoute) -> None:
        place = self._root
        for segment in route.path.strip("/").split("/"):
            if segment.startswith("{"):
                place.name = segment.strip("{}")
                place.parameter = place.parameter or _Place()
                place = place.parameter
            else:
                place = place.literals.setdefault(segment, _Place())
        place.routes[route.method] = route


def split_path(raw_path: bytes) -> list[str]:
    """The decoded segments of a path, without the prefix. Bytes that are not text become letters that no name holds."""
    if b"%" in raw_path:
        segments = [unquote_to_bytes(segment).decode(errors="replace") for segment in raw_path.split(b"/")]
    else:
        segments = raw_path.decode("latin-1").split("/")
    has_prefix = len(segments) > 1 and segments[1] == _PREFIX
    return segments[2:] if has_prefix else segments[1:]


def _allowed(place: _Place) -> list[str]:
    return sorted([*place.routes, *(["HEAD"] if "GET" in place.routes else [])])


def _not_found(segments: list[str]) -> RouteNotFound:
    path = "/" + "/".join(segments)
    return RouteNotFound(f"there is nothing at {path!r}; GET /openapi.json lists what there is", path=path)
