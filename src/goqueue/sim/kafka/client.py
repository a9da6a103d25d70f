"""A small Kafka client for simulated clients: one request at a time over one connection."""

from __future__ import annotations

import asyncio
import struct
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

from goqueue.sim.broker import HOST, KAFKA_PORT
from goqueue.sim.http import NoAnswer
from goqueue.wire.codec import Output, is_flexible, request_writer, response_reader
from goqueue.wire.schema import api_key, request_schema

REQUEST_TIMEOUT_S = 12.0
_HEADER = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")


@cache
def requests(api: str) -> Any:  # the classes are made at run time: mypy cannot know them
    """The classes of a request by their names."""
    return SimpleNamespace(**request_schema(api).classes)


class KafkaClient(Protocol):
    """Of one broker, or of a cluster whose nodes it finds by itself."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def connection_count(self) -> int:
        """Another one means: the broker may have begun another life."""

    async def call(self, api: str, version: int, /, **fields: Any) -> Any: ...  # of whatever API it is
    def close(self) -> None: ...


class SimKafkaClient:
    """Connects again after every failure; never repeats a request by itself."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int] = (HOST, KAFKA_PORT),
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self.connection_count = 0  # another one means: the broker may have begun another life
        self._client_id = name.encode()
        self._correlation_id = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_connected(self) -> bool:
        return self._streams is not None

    async def call(self, api: str, version: int, /, **fields: Any) -> Any:  # of whatever API it is
        """The answer; `NoAnswer` if there was none, and then nobody knows what became of the request."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._call(api, version, fields)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise NoAnswer(f"{api}: {error!r}") from error
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _call(self, api: str, version: int, fields: dict[str, Any]) -> Any:
        if self._streams is None:
            self.connection_count += 1
            self._streams = await asyncio.open_connection(*self.address)
        reader, writer = self._streams
        self._correlation_id += 1
        flexible = is_flexible(api, version)
        out = Output(_INT32.size)
        out += _HEADER.pack(api_key(api), version, self._correlation_id, len(self._client_id))
        out += self._client_id
        if flexible:
            out += b"\0"
        schema = request_schema(api)
        request_writer(api, version)(out, schema.classes[schema.root](**fields))
        _INT32.pack_into(out, 0, len(out) - _INT32.size)
        writer.write(bytes(out))
        await writer.drain()
        (size,) = _INT32.unpack(await reader.readexactly(_INT32.size))
        frame = await reader.readexactly(size)
        (correlation_id,) = _INT32.unpack_from(frame)
        if correlation_id != self._correlation_id:
            raise AssertionError(f"the answer to {correlation_id} came for {self._correlation_id}")
        return response_reader(api, version)(frame, _INT32.size + (1 if flexible else 0))
