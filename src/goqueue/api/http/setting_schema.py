"""The topic settings as JSON Schema, so that the document says what `goqueue.model.settings` enforces.

A value may be written as JSON or as the text that a GET returns, so that what was read can be sent back.
A test tries every bound against the model.
"""

from __future__ import annotations

from typing import Any

from goqueue.model.group_settings import GROUP_SETTINGS
from goqueue.model.names import NAME_LENGTH_MAX
from goqueue.model.settings import RULES, UNLIMITED, OneOf, Ratio, Rule, Switch, TopicName, Whole

Schema = dict[str, Any]  # a JSON document: any JSON under any name

_TEXT_DIGITS_MAX = 18  # any number of so many digits fits 63 bits; an exact pattern would fill a screen


def number_pattern(least: int, most: int) -> str:
    """A regular expression, without anchors, of the whole numbers from `least` to `most` in decimal.

    It walks up in the largest steps of the form "these digits, one digit from a range, any digits".
    """
    parts: list[tuple[str, int, int]] = []  # a prefix, and from how many to how many digits follow it
    start = least
    while start <= most:
        power = 0
        while start and start % 10 ** (power + 1) == 0 and start + 10 ** (power + 1) - 1 <= most:
            power += 1
        step = 10**power
        digit = start // step % 10
        last = digit + min(9 - digit, (most + 1 - start) // step - 1)
        prefix = str(start // step // 10 or "") + (str(digit) if digit == last else f"[{digit}-{last}]")
        if parts and parts[-1][0] == prefix and parts[-1][2] == power - 1:
            parts[-1] = (prefix, parts[-1][1], power)
        else:
            parts.append((prefix, power, power))
        start += (last - digit + 1) * step
    return f"({'|'.join(prefix + _digits(fewest, most) for prefix, fewest, most in parts)})"


def _digits(fewest: int, most: int) -> str:
    if most == 0:
        return ""
    return f"[0-9]{{{fewest},{most}}}" if fewest < most else f"[0-9]{{{most}}}"


def _schema(rule: Rule) -> Schema:
    match rule:
        case Whole(least, most, or_unlimited):
            return {"anyOf": _whole_schemas(least, most, or_unlimited)}
        case Ratio():
            return {
                "anyOf": [
                    {"type": "number", "minimum": 0, "maximum": 1},
                    {"type": "string", "pattern": r"^(0(\.[0-9]+)?|1(\.0+)?)$"},
                ]
            }
        case OneOf(kind):
            return {"type": "string", "enum": [member.value for member in kind]}
        case TopicName():
            return {"type": "string", "pattern": r"^([A-Za-z0-9._-]+)?$", "maxLength": NAME_LENGTH_MAX}
        case Switch():
            return {"enum": [False, "false", True, "true"]}


def _whole_schemas(least: int, most: int, or_unlimited: bool) -> list[Schema]:
    texts = number_pattern(least, min(most, 10**_TEXT_DIGITS_MAX - 1))
    schemas: list[Schema] = [
        {"type": "integer", "minimum": least, "maximum": most},
        {"type": "string", "pattern": f"^{texts}$"},
    ]
    return [*schemas, {"enum": [UNLIMITED, str(UNLIMITED)]}] if or_unlimited else schemas


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


SETTINGS_SCHEMA: Schema = {
    "additionalProperties": False,
    "properties": {name: _schema(rule) for name, rule in RULES.items()},
}
SETTINGS_SCHEMA_NULLABLE: Schema = {
    "description": "null takes an override back.",
    "additionalProperties": False,
    "properties": {name: _nullable(_schema(rule)) for name, rule in RULES.items()},
}
GROUP_SETTINGS_SCHEMA_NULLABLE: Schema = {
    "description": "null takes a setting back.",
    "additionalProperties": False,
    "properties": {name: _nullable(_schema(setting.rule)) for name, setting in GROUP_SETTINGS.items()},
}
