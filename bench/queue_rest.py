"""Ours by REST: publish, poll and ack/batch, one request under way on each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import TypeVar

import msgspec
from msgspec import Struct

from bench.line import BenchFailed, require
from bench.queue_client import Taken
from bench.queue_plans import Queue

T = TypeVar("T")
GROUP = "workers"
_LIMIT_BYTES = 64 * 1024 * 1024
_LENGTH = b"content-length: "


class Message(Struct, gc=False):
    value: str
    receipt_handle: str
    offset: int
    partition: int


class Polled(Struct):
    messages: list[Message]


class _Result(Struct, gc=False):
    offset: int


class _Results(Struct):
    results: list[_Result]


class _Member(Struct):
    member_id: str


class _Lag(Struct):
    offset: int
    lag: int


class _Offsets(Struct):
    offsets: dict[str, dict[str, _Lag]]


class _Nothing(Struct):
    """Of an answer that only has to be a success."""


class Connection:
    """Kept, and with one request at a time. Whatever is not a success fails the run."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader = reader
        self._writer = writer
        self._host = f"127.0.0.1:{port}"

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=_LIMIT_BYTES), port)

    async def ask(self, method: str, path: str, kind: type[T], body: bytes = b"") -> T:
        return msgspec.json.decode(await self.ask_raw(method, path, body), type=kind)

    async def ask_raw(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        head_bytes = await self._reader.readuntil(b"\r\n\r\n")
        at = head_bytes.index(_LENGTH) + len(_LENGTH)
        answer = await self._reader.readexactly(int(head_bytes[at : head_bytes.index(b"\r", at)]))
        status = int(head_bytes.split(b" ", 2)[1])
        if status not in (200, 201):
            raise BenchFailed(f"{method} {path}: {status} {answer[:400].decode(errors='replace')}")
        return answer

    async def close(self) -> None:
        self._writer.close()


class RestQueue:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._port = queue.admin_port or queue.port
        self._serials = count()

    async def create(self) -> None:
        body = {"name": self._queue.name, "num_partitions": 1}
        await self._once("POST", "/topics", _Nothing, msgspec.json.encode(body))

    async def publisher(self) -> RestPublisher:
        return RestPublisher(await Connection.open(self._port), self._queue.name)

    async def taker(self) -> RestTaker:
        return await RestTaker.join(self._port, self._queue.name, f"taker-{next(self._serials)}")

    async def unsettled_count(self) -> int:
        answer = await self._once("GET", f"/groups/{group_of(self._queue.name)}/offsets", _Offsets)
        return sum(lag.lag for lag in answer.offsets[self._queue.name].values())

    async def delete(self) -> None:
        await self._once("DELETE", f"/topics/{self._queue.name}", _Nothing)

    async def _once(self, method: str, path: str, kind: type[T], body: bytes = b"") -> T:
        connection = await Connection.open(self._port)
        try:
            return await connection.ask(method, path, kind, body)
        finally:
            await connection.close()


def group_of(topic: str) -> str:
    """A group for each queue, so that one run's leases are not in another's way."""
    return f"{GROUP}-{topic}"


class RestPublisher:
    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._path = f"/topics/{topic}/messages"

    async def publish(self, values: Sequence[bytes], priorities: Sequence[int] = ()) -> None:
        if priorities:
            messages = [
                b'{"value":"%s","priority":%d}' % pair for pair in zip(values, priorities, strict=True)
            ]
        else:
            messages = [b'{"value":"%s"}' % value for value in values]
        body = b'{"messages":[%s],"acks":"all"}' % b",".join(messages)
        answer = await self._connection.ask("POST", self._path, _Results, body)
        require(
            len(answer.results) == len(values), f"{len(values)} were sent, {len(answer.results)} answered"
        )

    async def close(self) -> None:
        await self._connection.close()


class RestTaker:
    """A member of the queue's group."""

    def __init__(self, connection: Connection, group: str, member_id: str) -> None:
        self._connection = connection
        self._group = group
        self._member_id = member_id

    @classmethod
    async def join(cls, port: int, topic: str, client_id: str) -> RestTaker:
        connection, group = await Connection.open(port), group_of(topic)
        body = {"client_id": client_id, "topics": [topic], "mode": "queue", "session_timeout": "60s"}
        member = await connection.ask("POST", f"/groups/{group}/join", _Member, msgspec.json.encode(body))
        return cls(connection, group, member.member_id)

    async def take(self, count_max: int, wait_s: float) -> Taken:
        messages = await self.poll(count_max, wait_s)

        async def ack() -> None:
            await self.ack(messages)

        return Taken([message.value.encode() for message in messages], ack)

    async def poll(self, count_max: int, wait_s: float, *, visibility: str | None = None) -> list[Message]:
        path = f"/groups/{self._group}/poll?member_id={self._member_id}&limit={count_max}&timeout={wait_s * 1_000:.0f}ms"
        if visibility is not None:
            path += f"&visibility={visibility}"
        return (await self._connection.ask("GET", path, Polled)).messages

    async def ack(self, messages: Sequence[Message]) -> None:
        handles = [message.receipt_handle for message in messages]
        body = msgspec.json.encode({"receipt_handles": handles})
        answer = await self._connection.ask("POST", "/messages/ack/batch", _Results, body)
        require(len(answer.results) == len(handles), "an answer does not speak of every receipt")

    async def close(self) -> None:
        body = msgspec.json.encode({"member_id": self._member_id})
        await self._connection.ask("POST", f"/groups/{self._group}/leave", _Nothing, body)
        await self._connection.close()
