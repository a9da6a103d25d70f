"""One kept-alive HTTP connection to a broker: JSON out, bytes back, errors typed.

A server may close an idle connection at any moment. Before a request is sent, a connection that the other
side has closed already is replaced: nothing was sent, so that is safe for every request. If the close
crosses the request on the wire, nobody knows whether the broker saw it; only idempotent requests are then
sent again, once.
"""

from __future__ import annotations

import http.client
import select
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

_CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)

Query = Mapping[str, str | int | None]


class ApiError(Exception):
    """The broker refused: its stable code, the HTTP status and the sentence that says why."""

    def __init__(self, code: str, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status
        self.sentence = sentence


class Unreachable(Exception):
    """No answer came. `was_sent` tells that the broker may have carried the request out nevertheless."""

    def __init__(self, sentence: str, *, was_sent: bool) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.was_sent = was_sent


class Reply(NamedTuple):
    status: int
    body: bytes


class _ErrorBody(msgspec.Struct):
    error: str
    code: str = "INTERNAL"


class Connection:
    """Not for use by two threads at once."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a broker's address; write http://HOST:PORT")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url = url
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._http = kind(parts.hostname, parts.port, timeout=timeout_s)

    def close(self) -> None:
        self._http.close()

    def request(
        self, method: str, path: str, *, query: Query | None = None, body: object = None, wait_s: float = 0
    ) -> Reply:
        """The broker's answer, whatever its status. `wait_s` is how long the broker was asked to wait."""
        target = self._prefix + path + _encode_query(query or {})
        payload = None if body is None else msgspec.json.encode(body)
        self._drop_if_closed()
        was_kept_alive = self._http.sock is not None
        try:
            return self._exchange(method, target, payload, wait_s)
        except _CLOSED as error:
            if not was_kept_alive or method == "POST":
                raise self._unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        try:
            return self._exchange(method, target, payload, wait_s)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _exchange(self, method: str, target: str, payload: bytes | None, wait_s: float) -> Reply:
        if self._http.sock is None:
            self._http.timeout = self._timeout_s
            self._http.connect()
        self._http.sock.settimeout(self._timeout_s + wait_s)
        headers = {"Content-Type": "application/json"} if payload is not None else {}
        try:
            self._http.request(method, target, payload, headers)
            response = self._http.getresponse()
            return Reply(response.status, response.read())
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise

    def _drop_if_closed(self) -> None:
        """An idle connection has nothing to say: if it is readable, that is the other side's goodbye."""
        sock = self._http.sock
        if sock is None:
            return
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if poll.poll(0):
            self._http.close()

    def _unreachable(self, error: Exception) -> Unreachable:
        was_sent = not isinstance(error, ConnectionRefusedError)
        reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror.lower()
        return Unreachable(f"no answer from the broker at {self._url}: {reason}", was_sent=was_sent)


def segment(text: str) -> str:
    """One path segment, whatever characters it holds."""
    return quote(text, safe="")


def error_of(reply: Reply) -> ApiError:
    """The error in an answer; also if it is from something in between that does not speak our JSON."""
    try:
        body = msgspec.json.decode(reply.body, type=_ErrorBody)
    except msgspec.DecodeError:
        return ApiError("INTERNAL", reply.status, f"the answer was HTTP {reply.status} without a reason")
    return ApiError(body.code, reply.status, body.error)


def _encode_query(query: Query) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
