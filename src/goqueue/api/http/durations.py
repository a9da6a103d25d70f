"""Durations and instants in JSON bodies: text such as "30s", or a whole number of milliseconds."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from goqueue.api.http.setting_schema import Schema, number_pattern
from goqueue.api.http.topic_bodies import LONG_MAX
from goqueue.model.duration import parse_duration_ms
from goqueue.model.errors import InvalidRequest

DAY_MS: Final = 86_400_000
_UNITS_MS: Final = {"(ms)?": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS}

# Whoever takes a duration has its own limits and says what they are.
Duration = Annotated[int, Meta(ge=-LONG_MAX, le=LONG_MAX)] | str


def duration_ms(name: str, value: str | int) -> int:
    """Milliseconds; `name` is that of the field, for the error."""
    if isinstance(value, int):
        return value
    try:
        milliseconds = parse_duration_ms(value)
    except ValueError as error:
        raise InvalidRequest(f"{name} is wrong: {error}", field=name, value=value) from None
    if milliseconds > LONG_MAX:
        raise InvalidRequest(
            f"{name} is {value!r}; the longest duration is {LONG_MAX} ms", field=name, value=value
        )
    return milliseconds


def duration_schema(ms_max: int, *, ms_min: int = 0) -> Schema:
    """What a duration may be, from a minimum to a maximum. Texts in other forms may be taken too; these always are."""
    forms = [
        number_pattern(-(-ms_min // unit_ms), ms_max // unit_ms) + unit for unit, unit_ms in _UNITS_MS.items()
    ]
    iso = f"PT{number_pattern(-(-ms_min // 1_000), ms_max // 1_000)}S"
    return {
        "anyOf": [
            {"type": "integer", "minimum": ms_min, "maximum": ms_max},
            {"type": "string", "pattern": f"^({'|'.join((*forms, iso))})$"},
        ]
    }
