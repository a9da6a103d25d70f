"""A Kafka broker that a test plays: requests come decoded, answers are whatever the test says, and it may misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from goqueue.wire.codec import Output, is_flexible, request_reader, response_writer
from goqueue.wire.schema import api_key, api_names, responses

TIMEOUT_S = 20.0
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")


class Request(NamedTuple):
    api: str
    version: int
    body: Any


class Raw(bytes):
    """Sent as it is, in place of an answer; then the connection ends."""


class Hold(threading.Event):
    """No answer until it is set; then the connection ends."""


# An answer, None to cut the connection.
Play = Callable[[Request], Any]


class ScriptedBroker:
    """`play` answers everything but ApiVersions. Requests of one connection are answered in order."""

    def __init__(self, play: Play, *, served: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._play = play
        self._served = served or {}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self.seen: list[Request] = []
        self.connection_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake a thread in accept()
        self._listener.close()
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was faster
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        for one in self._sockets:
            one.close()

    def asked(self, api: str) -> list[Any]:
        with self._changed:
            return [one.body for one in self.seen if one.api == api]

    def wait_for(self, api: str, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(
                lambda: len([one for one in self.seen if one.api == api]) >= count, TIMEOUT_S
            ), f"{count} of {api} among {[one.api for one in self.seen]}"
        return self.asked(api)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            self._answer_all(client)
        except OSError:
            pass  # the client, or the end of the test
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _answer_all(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                frame = stream.read(*_LENGTH.unpack(head))
                key, version, correlation_id, id_size = _HEADER.unpack_from(frame)
                api = _NAMES[key]
                at = _HEADER.size + id_size + is_flexible(api, version)
                request = Request(api, version, request_reader(api, version)(frame, at))
                answer = self._versions() if api == "api_versions" else None
                with self._changed:
                    self.seen.append(request)
                    self._changed.notify_all()
                answer = answer or self._play(request)
                if answer is None:
                    return
                if isinstance(answer, Hold):
                    answer.wait(TIMEOUT_S)
                    return
                if isinstance(answer, Raw):
                    client.sendall(answer)
                    return
                client.sendall(_framed(request, correlation_id, answer))

    def _versions(self) -> Any:  # a class that is made at run time
        kinds = responses("api_versions")
        ranges = {name: self._served.get(name, (0, 50)) for name in api_names()}
        keys = [
            kinds.ApiVersion(api_key=api_key(name), min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
        ]
        return kinds.ApiVersionsResponse(api_keys=keys)


def _framed(request: Request, correlation_id: int, answer: Any) -> bytes:  # as above
    out = Output()
    out += _LENGTH.pack(correlation_id)
    if request.api != "api_versions" and is_flexible(request.api, request.version):
        out += b"\0"
    response_writer(request.api, request.version)(out, answer)
    return _LENGTH.pack(len(out)) + bytes(out)


_NAMES = {api_key(name): name for name in api_names()}
