"""A broker in this process behind a real socket, and everything that must be true of it after an attack."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from tests.fuzz.messages import Likely, frame
from tests.support.logs import plain_batch

from goqueue.api.kafka.app import KafkaListener, served_apis
from goqueue.api.kafka.call import Api
from goqueue.api.kafka.connection import Connection
from goqueue.api.kafka.context import Context
from goqueue.log.os_disk import OsDisk
from goqueue.model.limits import Limits
from goqueue.model.topic_ids import topic_uuid
from goqueue.node.clock import SystemClock
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.wire.codec import Output, is_flexible, request_writer, response_reader
from goqueue.wire.schema import request_schema

FRAME_BYTES_MAX = 1 << 20
CONNECTION_COUNT_MAX = 300
ANSWER_S_MAX = 30.0
# Small limits, so that an attack gets to all of them.
CONFIG = NodeConfig(
    default_partition_count=1,
    limits=Limits(
        topic_count_max=150,
        partition_count_max=300,
        partitions_per_topic_max=60,
        request_bytes_max=FRAME_BYTES_MAX,
        connection_count_max=CONNECTION_COUNT_MAX,
        wait_ms_max=200,
    ),
)


class Broken(AssertionError):
    """The broker is not what it was before an attack."""


class Peer:
    """A client that sends whatever it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Broken connections are the broker's good right."""
        try:
            self._writer.write(data)
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._writer.drain()
        except (OSError, RuntimeError):
            pass

    def push(self, data: bytes) -> None:
        """Without waiting for anybody to take it."""
        self._writer.write(data)

    async def answer(self) -> bytes | None:
        """The next frame, or None at the end of the stream."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                length = struct.unpack(">i", await self.reader.readexactly(4))[0]
                return await self.reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def ask(self, api: str, version: int, message: Any) -> Any:  # classes that are made at run time
        out = Output()
        request_writer(api, version)(out, message)
        await self.send(frame(api, version, 7, bytes(out)))
        found = await self.answer()
        if found is None:
            raise Broken(f"{api} was not answered")
        return read_answer(api, version, found)

    def end_of_sending(self) -> None:
        self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


def read_answer(api: str, version: int, found: bytes) -> Any:
    """The body of a response that must be well formed."""
    at = 5 if api != "api_versions" and is_flexible(api, version) else 4
    return response_reader(api, version)(found, at)


class Target:
    def __init__(self, folder: Path, config: NodeConfig = CONFIG) -> None:
        self._folder = folder
        self._config = config
        self.sent: list[bytes] = []  # by the attack that is under way
        self._complaints: list[str] = []
        self._log = ErrorLog(self._complaints)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complaints.append(f"the loop: {context}"))
        logging.getLogger().addHandler(self._log)
        self.node = Node(self._config, OsDisk(str(self._folder)), SystemClock())
        await self.node.start()
        for topic in ("orders", "events"):
            await self.node.topics.create(topic, partition_count=2, overrides={})
        self.listener = KafkaListener(self.node, host="127.0.0.1", port=0)
        self.host, self.port = await self.listener.start()
        self.apis: list[Api] = served_apis(Context(self.node))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.node.drain()
        await self.listener.stop(5.0)
        await self.node.stop()
        logging.getLogger().removeHandler(self._log)
        asyncio.get_running_loop().set_exception_handler(None)
        if error is None:
            self._complain()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                raise Broken(f"tasks are left: {left}")

    async def connect(self, *, read_bytes_max: int = 64 * 1024) -> Peer:
        streams = await asyncio.open_connection(self.host, self.port, limit=read_bytes_max)
        return Peer(*streams)

    def likely(self) -> Likely:
        return likely_of(self.node)

    def connections(self) -> list[Connection]:
        return list(self.listener._server._connections)

    async def check(self) -> None:
        """Every client is gone: nothing is left of any, and the next one is served."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self.listener._server._gone.wait()
        except TimeoutError:
            raise Broken(f"{len(self.connections())} connections are not gone") from None
        left = [task for task in asyncio.all_tasks() if "Connection." in str(task.get_coro())]
        if left:
            raise Broken(f"tasks of connections are left: {left}")
        self._complain()
        await self._serve_one()
        self._complain()

    def forget(self) -> None:
        """The next attack begins."""
        self.sent.clear()

    def forgive(self) -> None:
        """Forget what was noticed so far."""
        self._complaints.clear()
        self.node.failed.clear()

    async def _serve_one(self) -> None:
        peer = await self.connect()
        try:
            versions = await peer.ask("api_versions", 3, request_of("api_versions"))
            if versions.error_code or len(versions.api_keys) != len(self.apis):
                raise Broken(f"ApiVersions: {versions}")
            found = await peer.ask("metadata", 9, request_of("metadata", topics=None))
            if [broker.port for broker in found.brokers] != [self.port]:
                raise Broken(f"Metadata: {found}")
        finally:
            await peer.close()
        await self.listener._server._gone.wait()

    def _complain(self) -> None:
        if self.node.failed.is_set():
            self._complaints.append("the node has failed")
        if self._complaints:
            raise Broken("\n".join(self._complaints))


def likely_of(node: Node) -> Likely:
    return Likely(_records, lambda: [topic_uuid(topic.id).bytes for topic in node.topics.list()])


def request_of(api: str, **fields: Any) -> Any:
    schema = request_schema(api)
    return schema.classes[schema.root](**fields)


def _records(random: Random) -> bytes:
    batch = plain_batch(*(random.randbytes(random.randrange(200)) for _ in range(random.randrange(1, 5))))
    if random.random() < 0.2:
        damaged = bytearray(batch)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        return bytes(damaged)
    return batch


class ErrorLog(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(self.format(record))
