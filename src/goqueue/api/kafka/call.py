"""What a handler is told about a request besides its content, and what it may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

# The message that a handler answers with: one of the classes of `goqueue.api.kafka.schema`, made at run time.
Message = Any


@dataclass(frozen=True, slots=True)
class Call:
    api: str
    version: int
    correlation_id: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Later:
    """The work is done in order; only the answer has to wait. The next request of the connection may begin."""

    answer: Awaitable[Answer]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The client does not want one."""


Answer = Message | Later | NoAnswer
Handle = Callable[[Call, Any], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Api:
    """One API as it is served: the versions that work, and who answers."""

    name: str
    first: int
    last: int
    handle: Handle
    advertised_first: int | None = field(
        default=None
    )  # where clients must be told of versions that are refused
