"""How consumed messages are printed."""

from __future__ import annotations

import json

import pytest

from goqueue.cli.message_format import compile_format
from goqueue.client.rest import Message

MESSAGE = Message(7, "2026-01-31T12:00:00.000Z", b"k", b"hello", (("a", b"1"), ("b", b"2"), ("b", None)))
BINARY = Message(8, "2026-01-31T12:00:00.000Z", None, b"\xff\x00", (("sum", b"\xfe"),))
TOMBSTONE = Message(9, "2026-01-31T12:00:00.000Z", b"k", None, ())


def test_a_template_may_name_every_field() -> None:
    render = compile_format("{topic}/{partition}/{offset} {timestamp} {key}={value} {headers}")
    assert render("t", 2, MESSAGE) == (b't/2/7 2026-01-31T12:00:00.000Z k=hello {"a":"1","b":["2",null]}\n')


def test_a_template_may_hold_escaped_tabs_and_doubled_braces() -> None:
    assert compile_format(r"{{{key}}}\t{value}")("t", 0, MESSAGE) == b"{k}\thello\n"


def test_bytes_that_are_not_text_leave_a_template_unchanged() -> None:
    assert compile_format("{value}")("t", 0, BINARY) == b"\xff\x00\n"


def test_a_tombstone_and_a_missing_key_print_as_null() -> None:
    assert compile_format("{value}")("t", 0, TOMBSTONE) == b"null\n"
    assert compile_format("{key}")("t", 0, BINARY) == b"null\n"


def test_json_lines_hold_every_field() -> None:
    assert json.loads(compile_format("json")("t", 2, MESSAGE)) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "key": "k",
        "value": "hello",
        "headers": {"a": "1", "b": ["2", None]},
    }


def test_json_lines_hold_base64_where_bytes_are_not_text() -> None:
    line = json.loads(compile_format("json")("t", 2, BINARY))
    assert line["value_base64"] == "/wA="
    assert "value" not in line
    assert line["headers"] == {"sum": {"base64": "/g=="}}


@pytest.mark.parametrize(
    "template", ["{valu}", "{}", "{0}", "{value", "}", "{value.__class__}", "{value!r}", "{offset:5}"]
)
def test_a_template_with_anything_but_fields_is_refused(template: str) -> None:
    with pytest.raises(ValueError):
        compile_format(template)
