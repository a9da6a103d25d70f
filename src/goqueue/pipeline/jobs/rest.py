"""What jobs ask of a broker over REST: errors become the pipeline's, and what is safe to ask again is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from goqueue.client.connection import ApiError, Connection, Reply, Unreachable, error_of
from goqueue.pipeline.errors import OptionError, PipelineError

T = TypeVar("T")

_TIMEOUT_S: Final = 60.0
_ATTEMPT_COUNT_MAX: Final = 5
_PAUSE_S: Final = 1.0  # doubled from one attempt to the next


class Refused(PipelineError):
    """The broker's own sentence."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.sentence)
        self.status = error.status


class BrokerRest:
    """Of one thread. Only for requests that may be made twice."""

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            self._connection = Connection(url, timeout_s=_TIMEOUT_S)
        except ValueError as error:
            raise OptionError(str(error)) from None
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, kind: type[T], *, body: object = None, wait_s: float = 0) -> T:
        reply = self._reply(method, path, body, wait_s)
        if reply.status >= 300:
            raise Refused(error_of(reply))
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except msgspec.DecodeError as error:
            raise PipelineError(f"the answer is not what a GoQueue broker sends: {error}") from None

    def _reply(self, method: str, path: str, body: object, wait_s: float) -> Reply:
        pause_s = _PAUSE_S
        for attempt in range(1, _ATTEMPT_COUNT_MAX + 1):
            try:
                return self._connection.request(method, path, body=body, wait_s=wait_s)
            except Unreachable as error:
                if attempt == _ATTEMPT_COUNT_MAX:
                    raise PipelineError(f"{error.sentence}; tried {attempt} times") from None
                self._sleep(pause_s)
                pause_s *= 2
        raise PipelineError("nothing was asked")  # never: there is at least one attempt
