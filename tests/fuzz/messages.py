"""Random requests that are well formed: from the layouts alone, with values that are likely to get somewhere."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from goqueue.wire.codec import Output, is_flexible, request_writer, response_writer
from goqueue.wire.schema import Field, MessageSchema, api_key, request_schema, response_schema

_INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LETTERS = "abcABC019._-/\u00e9\u20ac\0 "
_TOPICS = ("orders", "events", "a", "never-created")
_GROUPS = ("group-1", "group-2", "")
_SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "no.such.setting")
# By the names of fields. Whoever waits does so for a moment: a fuzzer must get on.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "name": (*_TOPICS, *_TOPICS, *_SETTINGS),
    "topic": _TOPICS,
    "topic_name": _TOPICS,
    "resource_name": _TOPICS,
    "config_name": _SETTINGS,
    "value": ("1", "100000", "compact", "delete", "-1", "compact,delete"),
    "group_id": _GROUPS,
    "group": _GROUPS,
    "key": _GROUPS,
    "member_id": ("", "", "member-1"),
    "group_instance_id": ("", "instance-1", "instance-2"),
    "transactional_id": ("t-1", "t-2"),
    "resource_type": (2, 2, 4),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 1),
    "endpoint_type": (1,),
    "isolation_level": (0, 1),
    "acks": (0, 1, -1),
    "index": (0, 1, 2),
    "count": (1, 2, 3, 4),
    "num_partitions": (-1, 1, 2),
    "replication_factor": (-1, 1),
    "producer_id": (-1, 0, 1, 2),
    "producer_epoch": (-1, 0, 1),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "session_id": (0, 0, 1, 2),
    "session_epoch": (-1, 0, 1),
    "transaction_timeout_ms": (1_000, 60_000),
    "session_timeout_ms": (1_000, 6_000),
    "rebalance_timeout_ms": (0, 20, 1_000),
    "max_wait_ms": (0, 1, 20),
    "timeout_ms": (1_000, 10_000),
    "timestamp": (-5, -4, -3, -2, -1, 0, 1_000),
}


class Likely:
    """Values by the names of fields, so that requests get past the first check."""

    def __init__(self, records: Callable[[Random], bytes], topic_ids: Callable[[], list[bytes]]) -> None:
        self._records = records
        self._topic_ids = topic_ids

    def value(self, random: Random, field: Field) -> Any:
        """None where there is nothing better than chance."""
        name = field.name
        if name in _CHOICES:
            return random.choice(_CHOICES[name])
        if field.type == "records":
            return self._records(random)
        if field.type == "uuid":
            return random.choice(self._topic_ids() or [bytes(16)])
        if field.type in ("string", "bytes", "bool"):
            return None
        if "partition" in name:
            return random.randrange(3)
        if "bytes" in name:
            return random.choice((0, 1, 1 << 20, 2**31 - 1))
        if "epoch" in name:
            return random.choice((-1, 0, 0, 1))
        if "offset" in name:
            return random.choice((-2, -1, 0, 1, 5))
        return None


class Messages:
    def __init__(self, random: Random, likely: Likely | None = None, *, likely_rate: float = 0.8) -> None:
        self._random = random
        self._likely = likely
        self._likely_rate = likely_rate

    def make(
        self, schema: MessageSchema, version: int
    ) -> Any:  # one of the classes that are made at run time
        layout = schema.layout(version)
        return self._struct(schema.classes, layout.struct, layout.fields, depth=0)

    def request(self, api: str, version: int) -> bytes:
        """A body."""
        out = Output()
        request_writer(api, version)(out, self.make(request_schema(api), version))
        return bytes(out)

    def response(self, api: str, version: int) -> bytes:
        out = Output()
        response_writer(api, version)(out, self.make(response_schema(api), version))
        return bytes(out)

    def _struct(self, classes: dict[str, type], name: str, fields: tuple[Field, ...], depth: int) -> Any:
        return classes[name](**{field.name: self._field(classes, field, depth) for field in fields})

    def _field(self, classes: dict[str, type], field: Field, depth: int) -> Any:
        random = self._random
        if field.nullable and random.random() < 0.2:
            return None
        if not field.array:
            return self._item(classes, field, depth)
        count_max = (5, 3, 2)[min(depth, 2)]
        return tuple(self._item(classes, field, depth + 1) for _ in range(random.randrange(count_max)))

    def _item(self, classes: dict[str, type], field: Field, depth: int) -> Any:
        if field.struct:
            return self._struct(classes, field.struct, field.fields, depth)
        random = self._random
        if self._likely is not None and random.random() < self._likely_rate:
            value = self._likely.value(random, field)
            if value is not None:
                return value
        return self._any(field.type)

    def _any(self, type: str) -> Any:
        random = self._random
        match type:
            case "bool":
                return random.random() < 0.5
            case "string":
                return "".join(random.choices(_LETTERS, k=random.choice((0, 1, 3, 20, 300))))
            case "bytes" | "records":
                return random.randbytes(random.choice((0, 1, 30, 1_000)))
            case "uuid":
                return random.randbytes(16)
            case "float64":
                return random.random()
            case "uint16":
                return random.randrange(1 << 16)
        bits = _INT_BITS[type]
        largest = (1 << bits - 1) - 1
        return random.choice((0, 1, -1, largest, -largest - 1, random.randint(-largest, largest)))


def frame(api: str, version: int, correlation_id: int, body: bytes, *, client_id: bytes = b"fuzz") -> bytes:
    """A whole frame around a body, with the header that the version has."""
    header = struct.pack(">hhih", api_key(api), version, correlation_id, len(client_id)) + client_id
    if is_flexible(api, version):
        header += b"\0"
    return framed(header + body)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
