"""What passes between the router and an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

from goqueue.node.clock import Clock
from goqueue.node.node import Node

Q = TypeVar("Q", bound=Struct)
B = TypeVar("B", bound=Struct)


class NoBody(Struct, frozen=True):
    """The route takes no body; one that is sent is not read."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """One request, decoded. `path` holds the percent-decoded segments by their names in the template."""

    node: Node
    clock: Clock
    document: Callable[[], bytes]  # the OpenAPI document of this node
    path: Mapping[str, str]
    query: Q
    body: B


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer other than the route's usual one: another status, or a body that is encoded already."""

    body: Struct | bytes
    status: int = 200
    content_type: str = "application/json"
