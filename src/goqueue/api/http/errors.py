"""Errors as JSON: one shape for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from goqueue.api.http.asgi import JSON, Send, send_bytes, send_json
from goqueue.model.codes import WIRE, Code
from goqueue.model.errors import GoQueueError, MethodNotAllowed

ENCODER = msgspec.json.Encoder()
Details = Mapping[str, str | int | float | bool | Sequence[str | int] | None]


class Error(Struct, frozen=True, forbid_unknown_fields=True):
    """What was wrong, which value, and what would be right."""

    error: str
    code: Code
    status: int
    details: Details


class InternalError(GoQueueError):
    """Says nothing about the inside: what happened is in the broker's log."""

    code = Code.INTERNAL

    def __init__(self) -> None:
        super().__init__("the broker failed to handle this request; its log says why")


class WrongMethod(MethodNotAllowed):
    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(
            f"{method} is not possible here; try {', '.join(allowed)}", method=method, allowed=allowed
        )
        self.allow = ", ".join(allowed)


def error_body(error: GoQueueError) -> Error:
    return Error(error.sentence, error.code, WIRE[error.code].http, error.details)


async def send_error(send: Send, error: GoQueueError) -> None:
    body = error_body(error)
    if isinstance(error, WrongMethod):
        headers = [(b"content-type", JSON.encode()), (b"allow", error.allow.encode())]
        await send_bytes(send, body.status, ENCODER.encode(body), headers)
    else:
        await send_json(send, body.status, ENCODER.encode(body))
