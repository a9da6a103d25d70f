"""How each version of each message is laid out, read once from schemas.json, which is Kafka's, and own_schemas.json, for
what Kafka has no message for.

One message has one class for all its versions, with every field that any of them has: a field that a version lacks
keeps its default when it is read and is left out when it is written. So nothing above this module branches on a
version, but for what the protocol itself gave a new meaning.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import Struct

NO_UUID = bytes(16)
_EMPTY: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": NO_UUID,
    "bool": False,
    "float64": 0.0,
}


class Field(Struct, frozen=True):
    """A value of a type, a struct, or an array of either."""

    name: str
    type: str = ""
    struct: str = ""
    fields: tuple[Field, ...] = ()
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: int | float | bool | str | None = None


class Layout(Struct, frozen=True):
    """What neighbouring versions have in common: everything."""

    versions: tuple[int, int]
    flexible: bool
    struct: str
    fields: tuple[Field, ...]


class ApiSchema(Struct, frozen=True):
    key: int
    request: tuple[Layout, ...]
    response: tuple[Layout, ...]


class MessageSchema:
    """One request or response: its layouts, and the classes that hold it."""

    def __init__(self, layouts: tuple[Layout, ...]) -> None:
        self._layouts = layouts
        self.root = layouts[-1].struct
        self.classes = _classes(layouts)

    def layout(self, version: int) -> Layout:
        for layout in self._layouts:
            if layout.versions[0] <= version <= layout.versions[1]:
                return layout
        raise KeyError(version)

    def versions(self) -> list[tuple[int, int]]:
        """First and last of each layout."""
        return [layout.versions for layout in self._layouts]


@cache
def _schemas() -> dict[str, ApiSchema]:
    folder = files("goqueue.wire")
    schemas: dict[str, ApiSchema] = {}
    for name in ("schemas.json", "own_schemas.json"):
        text = folder.joinpath(name).read_bytes()
        schemas |= msgspec.json.decode(text, type=dict[str, ApiSchema])
    return schemas


def api_names() -> list[str]:
    """In the order of their keys."""
    return list(_schemas())


def api_key(api: str) -> int:
    return _schemas()[api].key


@cache
def request_schema(api: str) -> MessageSchema:
    return MessageSchema(_schemas()[api].request)


@cache
def response_schema(api: str) -> MessageSchema:
    return MessageSchema(_schemas()[api].response)


def responses(api: str) -> Any:  # the classes are made at run time: mypy cannot know them
    """The classes of a response by their names."""
    return SimpleNamespace(**response_schema(api).classes)


def _classes(layouts: tuple[Layout, ...]) -> dict[str, type]:
    """One class per struct with the fields of all versions; those that newer versions agree on come first."""
    specs: dict[str, dict[str, Field]] = {}
    for layout in reversed(layouts):
        _gather(layout.struct, layout.fields, specs)
    classes: dict[str, type] = {}
    for name in reversed(specs):  # inner ones were gathered after the ones they are in
        fields = [(field.name, Any, _default(field, classes)) for field in specs[name].values()]
        classes[name] = msgspec.defstruct(name, fields)
    return classes


def _gather(struct: str, fields: tuple[Field, ...], specs: dict[str, dict[str, Field]]) -> None:
    known = specs.setdefault(struct, {})
    for field in fields:
        known.setdefault(field.name, field)
        if field.struct:
            _gather(field.struct, field.fields, specs)


def _default(field: Field, classes: dict[str, type]) -> Any:
    if field.default is not None:
        return field.default
    if field.nullable:
        return None
    if field.array:
        return ()
    if field.struct:
        return msgspec.field(default_factory=classes[field.struct])
    return _EMPTY.get(field.type, 0)
