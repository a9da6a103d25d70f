"""A small blocking client of the REST API, for the command line, tests and benchmarks.

Keys and values are bytes on this side. On the wire they are text where they are UTF-8 and base64 where not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from msgspec import Struct

from goqueue.client.cluster_views import (
    ClusterHealth,
    ClusterNode,
    ClusterNodes,
    ClusterState,
    Rebalanced,
    Voters,
)
from goqueue.client.connection import ApiError, Connection, Reply, Unreachable, error_of, segment
from goqueue.model.acks import Acks
from goqueue.model.record import Header

__all__ = ["ApiError", "Message", "NewMessage", "Page", "RestClient", "Unreachable"]

T = TypeVar("T")


class NewMessage(Struct, frozen=True):
    """What to publish. A value of None is a tombstone."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, str] = {}
    partition: int | None = None


class Published(Struct, frozen=True):
    """What became of one message: where it is stored, or why it is not."""

    partition: int | None = None
    offset: int | None = None
    error: str | None = None
    code: str | None = None


class Message(Struct, frozen=True):
    offset: int
    timestamp: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]  # in no particular order, except among headers of one name


class Page(Struct, frozen=True):
    """A stretch of one partition. Reading goes on at `next_offset`."""

    messages: list[Message]
    next_offset: int
    high_watermark: int
    last_stable_offset: int


class TopicSummary(Struct, frozen=True):
    name: str
    partitions: int
    created: str


class OffsetRange(Struct, frozen=True):
    earliest: int
    latest: int


class Scaled(Struct, frozen=True):
    """How many partitions a topic had, and has or will have."""

    name: str
    old_count: int
    new_count: int
    partitions_added: int


class Topic(Struct, frozen=True):
    name: str
    partitions: int
    created: str
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, OffsetRange]
    config: dict[str, str]
    overrides: dict[str, str]


class Partition(Struct, frozen=True):
    partition: int
    leader: str
    replicas: list[str]
    isr: list[str]
    epoch: int
    earliest: int
    high_watermark: int
    size_bytes: int
    failure: str | None = None


class RestClient:
    """One connection to one broker. Not for use by two threads at once."""

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        self._connection = Connection(url, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def create_topic(
        self,
        name: str,
        *,
        partition_count: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> TopicSummary:
        """What is None is left to the broker."""
        body: dict[str, object] = {"name": name}
        if partition_count is not None:
            body["num_partitions"] = partition_count
        if replication_factor is not None:
            body["replication_factor"] = replication_factor
        if config:
            body["config"] = dict(config)
        return _decode(self._connection.request("POST", "/topics", body=body), TopicSummary)

    def topics(self) -> list[TopicSummary]:
        return _decode(self._connection.request("GET", "/topics"), _Topics).topics

    def topic(self, name: str) -> Topic:
        return _decode(self._connection.request("GET", f"/topics/{segment(name)}"), Topic)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set what has a value; what is None falls back to the broker's default."""
        body = {"config": dict(config)}
        _expect_success(self._connection.request("PATCH", f"/topics/{segment(name)}", body=body))

    def scale_topic(self, name: str, partition_count: int, *, discard_read: bool = False) -> Scaled:
        """More partitions or, of a topic with scaling=keyed, fewer: then this is only the beginning of it. What goes does so when
        retention has emptied it, or, with `discard_read`, when every group has read it."""
        path = f"/admin/topics/{segment(name)}/partitions"
        body = {"count": partition_count, **({"discard_read": True} if discard_read else {})}
        return _decode(self._connection.request("POST", path, body=body), Scaled)

    def delete_topic(self, name: str) -> None:
        _expect_success(self._connection.request("DELETE", f"/topics/{segment(name)}"))

    def partitions(self, topic: str) -> list[Partition]:
        reply = self._connection.request("GET", f"/topics/{segment(topic)}/partitions")
        return _decode(reply, _Partitions).partitions

    def publish(
        self, topic: str, messages: Iterable[NewMessage], *, acks: Acks = Acks.ALL
    ) -> list[Published]:
        """One outcome per message. Raises only if the request as a whole was refused."""
        body = {"messages": [_to_wire(message) for message in messages], "acks": acks.value}
        reply = self._connection.request("POST", f"/topics/{segment(topic)}/messages", body=body)
        results = _results_of(reply)
        if results is None:
            raise error_of(reply)
        return results

    def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp: str | None = None,
        to_offset: int | None = None,
        to_timestamp: str | None = None,
        limit: int = 100,
        wait_ms: int = 0,
    ) -> Page:
        query = {
            "offset": offset,
            "timestamp": timestamp,
            "to_offset": to_offset,
            "to_timestamp": to_timestamp,
            "limit": limit,
            "wait": f"{wait_ms}ms" if wait_ms else None,
        }
        path = f"/topics/{segment(topic)}/partitions/{partition}/messages"
        reply = self._connection.request("GET", path, query=query, wait_s=wait_ms / 1_000)
        page = _decode(reply, _WirePage)
        messages = [_from_wire(message) for message in page.messages]
        return Page(messages, page.next_offset, page.high_watermark, page.last_stable_offset)

    def cluster_state(self) -> ClusterState:
        return _decode(self._connection.request("GET", "/cluster/state"), ClusterState)

    def cluster_nodes(self) -> list[ClusterNode]:
        return _decode(self._connection.request("GET", "/cluster/nodes"), ClusterNodes).nodes

    def cluster_health(self) -> ClusterHealth:
        return _decode(self._connection.request("GET", "/cluster/health"), ClusterHealth)

    def drain_node(self, name: str) -> ClusterNode:
        return _decode(self._connection.request("POST", "/cluster/drain", body={"node": name}), ClusterNode)

    def undrain_node(self, name: str) -> ClusterNode:
        return _decode(self._connection.request("POST", "/cluster/undrain", body={"node": name}), ClusterNode)

    def remove_node(self, name: str) -> list[ClusterNode]:
        """Those that are left."""
        reply = self._connection.request("DELETE", f"/cluster/nodes/{segment(name)}")
        return _decode(reply, ClusterNodes).nodes

    def voters(self) -> Voters:
        return _decode(self._connection.request("GET", "/cluster/voters"), Voters)

    def add_voter(self, name: str) -> Voters:
        return _decode(self._connection.request("POST", "/cluster/voters", body={"node": name}), Voters)

    def remove_voter(self, name: str) -> Voters:
        return _decode(self._connection.request("DELETE", f"/cluster/voters/{segment(name)}"), Voters)

    def rebalance(self) -> Rebalanced:
        """Partitions go back to their preferred leaders; those that did."""
        return _decode(self._connection.request("POST", "/cluster/rebalance", body={}), Rebalanced)


class _Topics(Struct):
    topics: list[TopicSummary]


class _Partitions(Struct):
    partitions: list[Partition]


class _Results(Struct):
    results: list[Published]


class _WireMessage(Struct):
    """As the broker sends it; msgspec reads base64 where the type is bytes."""

    offset: int
    timestamp: str
    key: str | None = None
    key_base64: bytes | None = None
    value: str | None = None
    value_base64: bytes | None = None
    headers: dict[str, str | list[str | None] | None] = {}
    headers_base64: dict[str, bytes | list[bytes | None] | None] = {}


class _WirePage(Struct):
    messages: list[_WireMessage]
    next_offset: int
    high_watermark: int
    last_stable_offset: int


def _decode(reply: Reply, kind: type[T]) -> T:
    _expect_success(reply)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.DecodeError as error:
        sentence = f"the answer is not what a GoQueue broker sends: {error}"
        raise ApiError("INTERNAL", reply.status, sentence) from error


def _expect_success(reply: Reply) -> None:
    if reply.status >= 300:
        raise error_of(reply)


def _results_of(reply: Reply) -> list[Published] | None:
    """Outcomes come with a success, and also with an error if every single message failed."""
    try:
        return msgspec.json.decode(reply.body, type=_Results).results
    except msgspec.DecodeError:
        return None


def _to_wire(message: NewMessage) -> dict[str, object]:
    wire: dict[str, object] = {"value": None} if message.value is None else _field("value", message.value)
    if message.key is not None:
        wire |= _field("key", message.key)
    if message.headers:
        wire["headers"] = message.headers
    if message.partition is not None:
        wire["partition"] = message.partition
    return wire


def _field(name: str, content: bytes) -> dict[str, object]:
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": content}  # msgspec writes bytes as base64


def _from_wire(message: _WireMessage) -> Message:
    return Message(
        message.offset,
        message.timestamp,
        _content(message.key, message.key_base64),
        _content(message.value, message.value_base64),
        tuple(_headers(message)),
    )


def _content(text: str | None, content: bytes | None) -> bytes | None:
    return content if text is None else text.encode()


def _headers(message: _WireMessage) -> Iterator[Header]:
    for name, texts in message.headers.items():
        for text in texts if isinstance(texts, list) else [texts]:
            yield name, _content(text, None)
    for name, contents in message.headers_base64.items():
        for content in contents if isinstance(contents, list) else [contents]:
            yield name, content
