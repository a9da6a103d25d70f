"""Query strings as typed structs: a parameter that nobody reads is refused, not ignored."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from goqueue.model.errors import InvalidRequest

Q = TypeVar("Q", bound=Struct)


class NoQuery(Struct, frozen=True):
    """The route takes no query parameters."""


def read_query(raw: bytes, kind: type[Q]) -> Q:
    """The query string as a struct of this kind; a parameter's absence is its default."""
    texts = _split(raw) if raw else {}
    for name in texts:
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__) or "none"
            raise InvalidRequest(f"unknown query parameter {name!r}; possible here: {known}", parameter=name)
    try:
        return msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`")
        if not name:
            raise InvalidRequest(f"the query string is wrong: {problem}") from None
        raise InvalidRequest(f"query parameter {name!r} is wrong: {problem}", parameter=name) from None


def _split(raw: bytes) -> dict[str, str]:
    """Names and values. A plus sign stays one: no value here holds a space, and RFC 3339 offsets hold a plus."""
    texts: dict[str, str] = {}
    try:
        for pair in raw.decode().split("&"):
            name, _, value = pair.partition("=")
            if "%" in pair:
                name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
            if name in texts:
                raise InvalidRequest(f"query parameter {name!r} is given twice", parameter=name)
            if pair:
                texts[name] = value
    except UnicodeDecodeError:
        raise InvalidRequest("the query string is not UTF-8") from None
    return texts
