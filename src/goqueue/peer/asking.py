"""One question about queues to another node: see `goqueue.node.queue.exchange`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.node.queue.exchange import ENCODER
from goqueue.peer.refusals import error_told
from goqueue.wire.schema import request_schema

API: Final = "ask_queue"
_Q: Any = SimpleNamespace(**request_schema(API).classes)  # made at run time: mypy cannot know them

Call = Callable[[str, str, int, Any], Awaitable[Any]]  # target, API, version, request
T = TypeVar("T")


class Asking:
    def __init__(self, call: Call) -> None:
        self._call = call

    async def ask(
        self, node: str, question: str, content: msgspec.Struct, answers: msgspec.msgpack.Decoder[T]
    ) -> T:
        """Raises what the other node refuses it with."""
        request = _Q.AskQueueRequest(question=question, body=ENCODER.encode(content))
        answer = await self._call(node, API, 0, request)
        if answer.error is not None:
            raise error_told(answer.error, answer.error_message or "", {})
        try:
            return answers.decode(bytes(answer.body))
        except msgspec.DecodeError as error:
            raise GoQueueError(
                f"the answer of node {node!r} is of another version: {error}", node=node
            ) from None
