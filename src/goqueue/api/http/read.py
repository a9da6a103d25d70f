"""GET /topics/{topic}/partitions/{partition}/messages: the other route whose cost per request counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import structs

from goqueue.api.http.asgi import ClientGone, Event, Receive, Send, send_json, wait_for_disconnect
from goqueue.api.http.errors import ENCODER
from goqueue.api.http.read_body import messages_body, parse_read_query
from goqueue.model.errors import InvalidRequest
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery, ReadResult

PARTITION_MAX = 999_999_999  # of a path; no topic comes near it


async def read(node: Node, path: Mapping[str, str], scope: Event, receive: Receive, send: Send) -> None:
    query = parse_read_query(scope["query_string"], node.config.limits.wait_ms_max)
    topic, partition = path["topic"], path_number("partition", path["partition"])
    # Most polls find data: only one that does not pays for the tasks that waiting takes.
    result = await node.reader.read(
        topic, partition, structs.replace(query, wait_ms=0) if query.wait_ms else query
    )
    if query.wait_ms and not result.records:
        result = await _wait(node, topic, partition, query, receive)
    await send_json(send, 200, ENCODER.encode(messages_body(result)))


async def _wait(node: Node, topic: str, partition: int, query: ReadQuery, receive: Receive) -> ReadResult:
    """Read with waiting, and stop as soon as the client has gone: it may poll a thousand times a minute."""
    reading = asyncio.create_task(node.reader.read(topic, partition, query))
    watching = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        raise ClientGone
    finally:
        reading.cancel()
        watching.cancel()
        await asyncio.wait((reading, watching))


def path_number(name: str, text: str, most: int = PARTITION_MAX) -> int:
    """A number in a path; `name` is that of the parameter."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    raise InvalidRequest(f"{name} {text!r} is not a whole number from 0 to {most}", **{name: text})
