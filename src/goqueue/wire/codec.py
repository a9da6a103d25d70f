"""Reads and writes messages by their layout. Built once per message and version out of small functions.

Whatever a client sends, reading takes no more time and memory than a small multiple of what came, within a fixed
bound: a length is checked against the bytes that are left before anything is made of it, and the items of all arrays of
a message count against one allowance (three bytes are enough to ask for an object).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, cast

from goqueue.wire.frames import Frame
from goqueue.wire.schema import Field, MessageSchema, request_schema, response_schema

Source = Frame | memoryview
Reader = Callable[[Source, int], tuple[Any, int]]
Writer = Callable[["Output", Any], None]
Chunks = list[memoryview]
_Step = Callable[[Source, int, dict[str, Any]], int]

REQUEST_ITEM_COUNT_MAX = 250_000  # more than naming every partition that a node may have takes
RESPONSE_ITEM_COUNT_MAX = 10_000_000  # for clients, who believe their broker
TEXT_BYTES_MAX = 32_767  # what the oldest encoding can carry, and the limit of every version in Kafka
_COPY_ONCE_BYTES = 4_096
_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
}
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Output(bytearray):
    """What is written so far, and where chunks that came from files go in between: those are never copied."""

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self.cuts: list[tuple[int, Chunks]] = []

    def pieces(self) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        start = 0
        for at, chunks in self.cuts:
            pieces.append(bytes(self[start:at]))
            pieces += chunks
            start = at
        pieces.append(bytes(self[start:]))
        return pieces


class Malformed(Exception):
    """The bytes are not the message they claim to be."""


class Allowance:
    """How many items the message that is being read may still have. One message is read at a time."""

    __slots__ = ("_item_count_max", "left")

    def __init__(self, item_count_max: int) -> None:
        self._item_count_max = self.left = item_count_max

    def renew(self) -> None:
        self.left = self._item_count_max

    def take(self, count: int, name: str) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"{name} is one item too many; a message has {self._item_count_max} at most")


@cache
def request_reader(api: str, version: int) -> Callable[[Source, int], Any]:
    """Reads the body of a request from a position on."""
    return _message_reader(request_schema(api), version, Allowance(REQUEST_ITEM_COUNT_MAX))


@cache
def response_reader(api: str, version: int) -> Callable[[Source, int], Any]:
    """For clients: the simulated ones and those in tests."""
    return _message_reader(response_schema(api), version, Allowance(RESPONSE_ITEM_COUNT_MAX))


@cache
def response_writer(api: str, version: int) -> Writer:
    schema = response_schema(api)
    return _struct_writer(schema.layout(version).fields, schema.layout(version).flexible)


@cache
def request_writer(api: str, version: int) -> Writer:
    """For clients, as above."""
    schema = request_schema(api)
    return _struct_writer(schema.layout(version).fields, schema.layout(version).flexible)


@cache
def is_flexible(api: str, version: int) -> bool:
    """Whether the version has compact lengths and tagged fields."""
    return request_schema(api).layout(version).flexible


def _message_reader(
    schema: MessageSchema, version: int, allowance: Allowance
) -> Callable[[Source, int], Any]:
    layout = schema.layout(version)
    builder = _ReaderBuilder(schema.classes, layout.flexible, allowance)
    read = builder.struct(layout.struct, layout.fields)

    def read_message(data: Source, at: int) -> Any:
        allowance.renew()
        try:
            return read(data, at)[0]
        except (ValueError, struct.error, IndexError) as error:
            raise Malformed(f"{layout.struct} version {version}: {error}") from None

    return read_message


class _ReaderBuilder:
    """Puts the reader of one message and version together."""

    def __init__(self, classes: dict[str, type], flexible: bool, allowance: Allowance) -> None:
        self._classes = classes
        self._flexible = flexible
        self._allowance = allowance

    def struct(self, name: str, fields: tuple[Field, ...]) -> Reader:
        kind = self._classes[name]
        flexible, allowance = self._flexible, self._allowance
        steps = self._steps([field for field in fields if field.tag is None])
        tags = {field.tag: (field.name, self._field(field)) for field in fields if field.tag is not None}

        def read(data: Source, at: int) -> tuple[Any, int]:
            found: dict[str, Any] = {}
            for step in steps:
                at = step(data, at, found)
            if flexible:
                # Mostly there are none.
                at = _read_tags(data, at, tags, found, allowance) if data[at] else at + 1
            return kind(**found), at

        return read

    def _steps(self, fields: list[Field]) -> list[_Step]:
        """Neighbours of fixed size are read at once."""
        steps: list[_Step] = []
        fixed: list[Field] = []
        for field in [*fields, None]:
            if field is not None and field.type in _FIXED and not field.array:
                fixed.append(field)
                continue
            if fixed:
                steps.append(_fixed_step(fixed))
                fixed = []
            if field is not None:
                steps.append(_step(field.name, self._field(field)))
        return steps

    def _field(self, field: Field) -> Reader:
        if field.struct:
            item = self.struct(field.struct, field.fields)
            if not field.array:
                return _nullable_struct_reader(item) if field.nullable else item
        else:
            # An array may be null; what is in it may not.
            is_nullable = field.nullable and not field.array
            item = _value_reader(field.type, self._flexible, is_nullable=is_nullable)
        return _array_reader(item, self._flexible, field, self._allowance) if field.array else item


def _fixed_step(fields: list[Field]) -> _Step:
    names = [field.name for field in fields]
    packed = struct.Struct(">" + "".join(_FIXED[field.type] for field in fields))
    unpack, size = packed.unpack_from, packed.size

    def step(data: Source, at: int, found: dict[str, Any]) -> int:
        found.update(zip(names, unpack(data, at), strict=True))
        return at + size

    return step


def _step(name: str, read: Reader) -> _Step:
    def step(data: Source, at: int, found: dict[str, Any]) -> int:
        found[name], at = read(data, at)
        return at

    return step


def _read_tags(
    data: Source, at: int, tags: dict[int, tuple[str, Reader]], found: dict[str, Any], allowance: Allowance
) -> int:
    """Those that are unknown are skipped: newer clients have more of them."""
    count, at = read_uvarint(data, at)
    if count:
        allowance.take(count, "a tagged field")
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        end = _end(data, at, size)
        if tag in tags:
            name, read = tags[tag]
            found[name], stop = read(data, at)
            if stop != end:
                raise ValueError(f"tagged field {name} has {stop - at} bytes, not {size}")
        at = end
    return at


def _nullable_struct_reader(read: Reader) -> Reader:
    def read_nullable(data: Source, at: int) -> tuple[Any, int]:
        return (None, at + 1) if _INT8.unpack_from(data, at)[0] < 0 else read(data, at + 1)

    return read_nullable


def _array_reader(read: Reader, flexible: bool, field: Field, allowance: Allowance) -> Reader:
    def read_array(data: Source, at: int) -> tuple[Any, int]:
        count, at = _read_length(data, at, flexible, size=4)
        if count is None:
            if field.nullable:
                return None, at
            raise ValueError(f"{field.name} is null")
        if count > len(data) - at:  # an item has a byte at least
            raise ValueError(f"{field.name} has {count} items in {len(data) - at} bytes")
        allowance.take(count, field.name)
        items = []
        for _ in range(count):
            item, at = read(data, at)
            items.append(item)
        return tuple(items), at

    return read_array


def _value_reader(type: str, flexible: bool, *, is_nullable: bool) -> Reader:
    if type in _FIXED:
        packed = struct.Struct(">" + _FIXED[type])
        return lambda data, at: (packed.unpack_from(data, at)[0], at + packed.size)
    if type == "uuid":
        return lambda data, at: (bytes(data[at : _end(data, at, 16)]), at + 16)
    size = 2 if type == "string" else 4

    def read_bytes(data: Source, at: int) -> tuple[Any, int]:
        count, at = _read_length(data, at, flexible, size=size)
        if count is None:
            if is_nullable:
                return None, at
            raise ValueError(f"a {type} is null")
        end = _end(data, at, count)
        if type == "records" and isinstance(data, memoryview):
            return data[at:end], end  # of a frame that is a view they are one, too
        # A large frame is a bytearray, and one copy of its records is enough.
        return bytes(memoryview(data)[at:end] if count > _COPY_ONCE_BYTES else data[at:end]), end

    if type != "string":
        return read_bytes

    def read_string(data: Source, at: int) -> tuple[Any, int]:
        value, at = read_bytes(data, at)
        if value is None:
            return None, at
        if len(value) > TEXT_BYTES_MAX:
            raise ValueError(f"a string of {len(value)} bytes; {TEXT_BYTES_MAX} are allowed")
        return value.decode(), at

    return read_string


def _read_length(data: Source, at: int, flexible: bool, *, size: int) -> tuple[int | None, int]:
    if flexible:
        count = data[at]
        if count < 0x80:
            at += 1
        else:
            count, at = read_uvarint(data, at)
        return (None if count == 0 else count - 1), at
    length = (_INT16 if size == 2 else _INT32).unpack_from(data, at)[0]
    if length < -1:
        raise ValueError(f"a length is {length}")
    return (None if length < 0 else length), at + size


def read_uvarint(data: Source, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ValueError("a variable-length integer has more than five bytes")


def _end(data: Source, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ValueError(f"{size} bytes are announced and {len(data) - at} are left")
    return at + size


def _struct_writer(fields: tuple[Field, ...], flexible: bool) -> Writer:
    steps: list[Writer] = []
    fixed: list[Field] = []
    for field in [*(field for field in fields if field.tag is None), None]:
        if field is not None and field.type in _FIXED and not field.array:
            fixed.append(field)
            continue
        if fixed:
            steps.append(_fixed_writer(fixed))
            fixed = []
        if field is not None:
            steps.append(_member_writer(field.name, _field_writer(field, flexible)))
    tags = [
        (field.tag, field.name, _field_writer(field, flexible)) for field in fields if field.tag is not None
    ]
    tags.sort(key=itemgetter(0))

    def write(out: Output, value: Any) -> None:
        for step in steps:
            step(out, value)
        if flexible:
            if tags:
                _write_tags(out, value, tags)
            else:
                out.append(0)

    return write


def _fixed_writer(fields: list[Field]) -> Writer:
    pack = struct.Struct(">" + "".join(_FIXED[field.type] for field in fields)).pack
    get = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:

        def write_one(out: Output, value: Any) -> None:
            out += pack(get(value))

        return write_one

    def write(out: Output, value: Any) -> None:
        out += pack(*get(value))

    return write


def _member_writer(name: str, write: Writer) -> Writer:
    get = attrgetter(name)

    def write_member(out: Output, value: Any) -> None:
        write(out, get(value))

    return write_member


def _write_tags(out: Output, value: Any, tags: list[tuple[int, str, Writer]]) -> None:
    """Those that differ from their defaults; a nullable one that is null is left out as well."""
    defaults = _defaults(cast(Hashable, type(value)))  # mypy does not know that classes are
    present = []
    for tag, name, write in tags:
        member = getattr(value, name)
        if member is None or member == getattr(defaults, name):
            continue
        body = Output()
        write(body, member)
        present.append((tag, body))
    write_uvarint(out, len(present))
    for tag, body in present:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


@cache
def _defaults(kind: Any) -> Any:
    """To compare with, never to change."""
    return kind()


def _field_writer(field: Field, flexible: bool) -> Writer:
    if field.struct:
        item = _struct_writer(field.fields, flexible)
        if not field.array:
            return _nullable_struct_writer(item) if field.nullable else item
    else:
        item = _value_writer(field.type, flexible, is_nullable=field.nullable and not field.array)
    return _array_writer(item, flexible, field.nullable) if field.array else item


def _nullable_struct_writer(write: Writer) -> Writer:
    def write_nullable(out: Output, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            write(out, value)

    return write_nullable


def _array_writer(write: Writer, flexible: bool, is_nullable: bool) -> Writer:
    def write_array(out: Output, value: Any) -> None:
        if value is None:
            _write_length(out, None if is_nullable else 0, flexible, _INT32)
            return
        _write_length(out, len(value), flexible, _INT32)
        for item in value:
            write(out, item)

    return write_array


def _value_writer(type: str, flexible: bool, *, is_nullable: bool) -> Writer:
    """None where a version has no null (a newer one has) is written as empty."""
    if type in _FIXED:
        pack = struct.Struct(">" + _FIXED[type]).pack

        def write_fixed(out: Output, value: Any) -> None:
            out += pack(value)

        return write_fixed
    if type == "uuid":

        def write_uuid(out: Output, value: Any) -> None:
            out += value

        return write_uuid
    is_text = type == "string"
    length = _INT16 if is_text else _INT32

    def write_bytes(out: Output, value: Any) -> None:
        if value is None:
            _write_length(out, None if is_nullable else 0, flexible, length)
            return
        if isinstance(value, list):
            _write_length(out, sum(map(len, value)), flexible, length)
            out.cuts.append((len(out), value))
            return
        content = _text(value) if is_text else value
        _write_length(out, len(content), flexible, length)
        out += content

    return write_bytes


def _text(value: str) -> bytes:
    """Names are within the limit since they were read; a sentence about one may not be, and loses its end."""
    content = value.encode()
    if len(content) <= TEXT_BYTES_MAX:
        return content
    return content[:TEXT_BYTES_MAX].decode(errors="ignore").encode()


def _write_length(out: Output, count: int | None, flexible: bool, length: struct.Struct) -> None:
    if flexible:
        write_uvarint(out, 0 if count is None else count + 1)
    else:
        out += length.pack(-1 if count is None else count)


def write_uvarint(out: Output, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
