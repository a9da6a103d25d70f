"""What a handler is told about a request besides its content, and what it may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any

# The message that a handler answers with: one of the classes of `goqueue.wire.schema`, made at run time.
Message = Any


class Closing:
    """What is to be done when a client's connection ends."""

    def __init__(self) -> None:
        self._steps: dict[Hashable, Callable[[], None]] = {}

    def add(self, key: Hashable, step: Callable[[], None]) -> None:
        self._steps[key] = step

    def drop(self, key: Hashable) -> None:
        self._steps.pop(key, None)

    def run(self) -> None:
        steps, self._steps = self._steps, {}
        for step in steps.values():
            step()


class Identity:
    """Who is at the other end of a connection: nobody that we know of, until it has logged in."""

    __slots__ = ("incarnation", "login", "peer")

    def __init__(self) -> None:
        self.peer: str | None = None  # the name of a node
        self.incarnation: str | None = (
            None  # of that node, as it says; of an earlier version as this one knew it when it logged in
        )
        self.login: object = None  # that is under way; known to who serves logins


@dataclass(frozen=True, slots=True)
class Call:
    api: str
    version: int
    correlation_id: int
    client_id: str
    client_host: str
    closing: Closing = field(default_factory=Closing)  # of the connection that it came by
    peer: str | None = None  # the node that has logged in on it
    identity: Identity = field(default_factory=Identity)  # of the connection as well; only a login changes it


@dataclass(frozen=True, slots=True)
class Later:
    """The work is done in order, or runs as a task (see `begun`); only the answer has to wait. The next request of the connection
    may begin."""

    answer: Awaitable[
        Answer
    ]  # a coroutine is not begun before those in front of it are answered: it may only wait


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The client does not want one."""


Answer = Message | Later | NoAnswer


def begun(work: Coroutine[Any, Any, Answer]) -> Later:
    """Work that runs beside that of other requests, whatever these wait for. It ends with its connection."""
    return Later(asyncio.get_running_loop().create_task(work))


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
