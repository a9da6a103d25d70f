"""JSON bodies as typed values, or the reason why not."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from goqueue.model.errors import InvalidRequest

T = TypeVar("T")

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            # To JSON 3.0 is the same number as 3, and some languages write it so; the decoder disagrees.
            return msgspec.convert(_with_whole_numbers(msgspec.json.decode(data)), decoder.type)
    except _ERRORS as error:
        raise explain(error) from None


def explain(error: Exception) -> InvalidRequest:
    """What a decoder's error means to a client, in words that name the place."""
    if isinstance(error, msgspec.ValidationError):
        problem, _, place = str(error).partition(" - at ")
        path = place.strip("`") or "$"
        return InvalidRequest(
            f"the request body is not as documented at {path}: {_lower(problem)}", path=path
        )
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest("the request body is not UTF-8")
    if isinstance(error, RecursionError):
        return InvalidRequest("the request body is nested too deeply")
    return InvalidRequest(f"the request body is not JSON: {_lower(str(error))}")


def _with_whole_numbers(value: Any) -> Any:  # any JSON
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _with_whole_numbers(inner) for name, inner in value.items()}
        case list():
            return [_with_whole_numbers(inner) for inner in value]
        case _:
            return value


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
