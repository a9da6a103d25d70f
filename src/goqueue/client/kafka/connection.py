"""One blocking connection to one broker: requests go out, answers come back in the same order.

`send` and `receive` are apart so that several requests may be under way. A large answer is received straight into one buffer
that all answers share; what an answer holds is copied out of it by the codec, but for records: they are a view of it, good until
the next answer is received.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from goqueue.client.kafka.codes import ErrorCode, name_of
from goqueue.client.kafka.errors import KafkaError, NotUnderstood, Unreachable, unfit
from goqueue.client.kafka.security import Security, protected
from goqueue.wire.codec import (
    TEXT_BYTES_MAX,
    Malformed,
    Output,
    is_flexible,
    read_uvarint,
    request_writer,
    response_reader,
)
from goqueue.wire.schema import api_key, request_schema

API_VERSIONS = "api_versions"
# What this client speaks: the first version that says all it needs, and the last that knows topics by their names.
KNOWN = {
    API_VERSIONS: (0, 0),
    "create_topics": (2, 7),
    "describe_configs": (1, 4),
    "end_joint": (0, 0),
    "enrol_in_joint": (0, 0),
    "fetch": (4, 12),
    "find_coordinator": (4, 6),
    "init_producer_id": (0, 5),
    "list_offsets": (2, 10),
    "metadata": (4, 12),
    "offset_commit": (2, 9),
    "offset_fetch": (8, 9),
    "produce": (3, 12),
}
ANSWER_BYTES_MAX = 256 * 1024 * 1024
_ANSWER_BYTES_KEPT = 64 * 1024 * 1024  # a larger buffer is not kept for the next answer
_JOINED_BYTES_MAX = 64 * 1024
_CONNECT_S_MAX = 10.0  # then another address has its turn
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Dialler:
    """Opens connections, all with the same name, protection and patience."""

    def __init__(self, security: Security, *, client_id: str, timeout_s: float) -> None:
        if len(client_id.encode()) > TEXT_BYTES_MAX:
            raise unfit(ErrorCode.INVALID_CONFIG, f"a client id has at most {TEXT_BYTES_MAX} bytes")
        self._context = security.context()
        self._server_name = security.server_name
        self._client_id = client_id
        self._timeout_s = timeout_s

    def dial(self, address: Address) -> Connection:
        """A connection that has learned what the broker speaks."""
        connection = Connection(self._connected(address), address, self._client_id)
        try:
            connection.learn_versions()
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, address: Address) -> socket.socket:
        try:
            plain = socket.create_connection(address, timeout=min(self._timeout_s, _CONNECT_S_MAX))
            plain.settimeout(self._timeout_s)
        except OSError as error:
            raise Unreachable(f"{address} cannot be reached: {_reason(error)}") from error
        except (OverflowError, UnicodeError) as error:
            raise NotUnderstood(f"{address} is no address: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return plain
            return protected(plain, self._context, self._server_name or address.host, str(address))
        except OSError as error:
            plain.close()
            raise Unreachable(f"{address} ended the connection at once: {_reason(error)}") from error
        except KafkaError:
            plain.close()
            raise


class _Asked(NamedTuple):
    """A request that is under way."""

    correlation_id: int
    api: str
    version: int


class Connection:
    """Of one thread. After any error but a refusal in an answer it is of no use any more: close it."""

    def __init__(self, connected: socket.socket, address: Address, client_id: str) -> None:
        self.address = address
        self._socket = connected
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._asked: deque[_Asked] = deque()
        self._served: Mapping[int, tuple[int, int]] = {api_key(API_VERSIONS): (0, 0)}
        self._buffer = bytearray(64 * 1024)
        self._is_torn = False  # a message was begun and not finished

    @property
    def waiting_count(self) -> int:
        """Answers that are still to come."""
        return len(self._asked)

    @property
    def is_free(self) -> bool:
        """Nothing is under way: another may use it."""
        return not self._asked and not self._is_torn

    def learn_versions(self) -> None:
        answer = self.call(API_VERSIONS)
        if answer.error_code:
            raise NotUnderstood(f"{self.address} does not say what it serves: {name_of(answer.error_code)}")
        self._served = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def version(self, api: str, *, least: int = 0) -> int:
        """The newest that both sides know."""
        first, last = self._served.get(api_key(api), (0, -1))
        known_first, known_last = KNOWN[api]
        version = min(last, known_last)
        if version < max(first, known_first, least):
            serves = f"in versions {first} to {last}" if last >= 0 else "not at all"
            raise unfit(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves {api} {serves}; versions {max(known_first, least)} to {known_last} are needed",
            )
        return version

    def call(self, api: str, /, **fields: Any) -> Any:  # of whatever API it is
        """One request and its answer, when nothing else is under way."""
        self.send(api, **fields)
        return self.receive()

    def send(
        self, api: str, /, *, least_version: int = 0, is_answered: bool = True, **fields: Any
    ) -> None:  # as above
        version = self.version(api, least=least_version)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        out = Output(_LENGTH.size)
        out += _HEADER.pack(api_key(api), version, self._correlation_id, len(self._client_id))
        out += self._client_id
        if is_flexible(api, version):
            out += b"\0"
        schema = request_schema(api)
        request_writer(api, version)(out, schema.classes[schema.root](**fields))
        inserted = sum(len(chunk) for _, chunks in out.cuts for chunk in chunks)
        _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size + inserted)
        if is_answered:
            self._asked.append(_Asked(self._correlation_id, api, version))
        self._guarded(lambda: self._send_pieces(out))

    def receive(self) -> Any:  # as above
        """The answer to the oldest request that has none yet."""
        asked = self._asked[0]
        frame = self._guarded(self._receive_frame)
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if correlation_id != asked.correlation_id:
            raise NotUnderstood(
                f"{self.address} answers request {correlation_id}; {asked.correlation_id} was next"
            )
        # ApiVersions has no tags in its header, so that any client can read it.
        has_tags = asked.api != API_VERSIONS and is_flexible(asked.api, asked.version)
        try:
            at = _skip_tags(frame, _LENGTH.size) if has_tags else _LENGTH.size
            answer = response_reader(asked.api, asked.version)(frame, at)
        except (Malformed, IndexError, ValueError) as error:
            raise NotUnderstood(f"{self.address} sent an answer that cannot be read: {error}") from error
        self._asked.popleft()
        return answer

    def has_input(self) -> bool:
        """Whether something can be received at once: an answer, or that the other side has gone."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._asked.clear()
        self._socket.close()

    def _guarded(self, act: Callable[[], Any]) -> Any:  # of what it does
        self._is_torn = True
        try:
            done = act()
        except TimeoutError as error:
            raise Unreachable(f"{self.address} was silent for {self._socket.gettimeout():g} s") from error
        except OSError as error:
            raise Unreachable(f"the connection to {self.address} broke: {_reason(error)}") from error
        self._is_torn = False
        return done

    def _send_pieces(self, out: Output) -> None:
        if not out.cuts:
            self._socket.sendall(out)
            return
        for piece in _joined(out.pieces()):
            self._socket.sendall(piece)

    def _receive_frame(self) -> memoryview:
        head = bytearray(_LENGTH.size)
        self._fill(memoryview(head))
        (size,) = _LENGTH.unpack(head)
        if not _LENGTH.size < size <= ANSWER_BYTES_MAX:
            raise NotUnderstood(
                f"{self.address} is no Kafka broker, or expects another security protocol: it answers {bytes(head)!r}"
            )
        buffer = self._buffer
        if size > len(buffer):
            buffer = bytearray(size)
            if size <= _ANSWER_BYTES_KEPT:
                self._buffer = buffer
        frame = memoryview(buffer)[:size]
        self._fill(frame)
        return frame

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ConnectionResetError("it was closed by the other side")
            view = view[count:]


def _skip_tags(data: memoryview, at: int) -> int:
    """Headers have none that a client must know."""
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    return at


def _joined(pieces: list[bytes | memoryview]) -> Iterator[bytes | bytearray | memoryview]:
    """Small neighbours as one; large ones as they are, never copied."""
    small = bytearray()
    for piece in pieces:
        if len(piece) < _JOINED_BYTES_MAX:
            small += piece
        if len(piece) >= _JOINED_BYTES_MAX or len(small) >= _JOINED_BYTES_MAX:
            if small:
                yield small
                small = bytearray()
            if len(piece) >= _JOINED_BYTES_MAX:
                yield piece
    if small:
        yield small


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
