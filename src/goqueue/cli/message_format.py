r"""How `consume` prints a message: a template such as `{key}\t{value}`, or JSON lines.

A key or value that is not UTF-8 leaves as the bytes it came as (text formats) or as base64 (JSON).
"""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter

import msgspec

from goqueue.client.rest import Message

JSON_LINES = "json"
FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ABSENT = "null"  # as Kafka's tools print a missing key and a tombstone

Render = Callable[[str, int, Message], bytes]


def compile_format(template: str) -> Render:
    """A function that renders a message as one line; ValueError says what is wrong with the template."""
    if template == JSON_LINES:
        return _render_json
    _check(template)
    shape = template.replace("\\t", "\t").replace("\\n", "\n") + "\n"

    def render(topic: str, partition: int, message: Message) -> bytes:
        text = shape.format(
            topic=topic,
            partition=partition,
            offset=message.offset,
            timestamp=message.timestamp,
            key=_text(message.key),
            value=_text(message.value),
            headers=msgspec.json.encode(_headers(message)).decode(),
        )
        return text.encode("utf-8", "surrogateescape")

    return render


def _check(template: str) -> None:
    for _, field, conversion_spec, conversion in Formatter().parse(template):
        if field is not None and (field not in FIELDS or conversion_spec or conversion):
            raise ValueError(
                f"{{{field}}} is not a field; there are {', '.join(f'{{{name}}}' for name in FIELDS)}, or the word json"
            )


def _render_json(topic: str, partition: int, message: Message) -> bytes:
    line: dict[str, object] = {"topic": topic, "partition": partition, "offset": message.offset}
    line["timestamp"] = message.timestamp
    line |= _field("key", message.key) | _field("value", message.value)
    line["headers"] = _headers(message)
    return msgspec.json.encode(line) + b"\n"


def _headers(message: Message) -> dict[str, object]:
    """By name; a list where a name occurs more than once, {"base64": ...} where a value is not text."""
    by_name: dict[str, list[object]] = {}
    for name, content in message.headers:
        shown = _field("text", content).get("text", {"base64": content})
        by_name.setdefault(name, []).append(shown)
    return {name: several if len(several) > 1 else several[0] for name, several in by_name.items()}


def _field(name: str, content: bytes | None) -> dict[str, object]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": content}  # msgspec writes bytes as base64


def _text(content: bytes | None) -> str:
    return _ABSENT if content is None else content.decode("utf-8", "surrogateescape")
