"""How results look: an aligned table for people, JSON and YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
import yaml


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(
    value: object, output: Output, *, headings: Sequence[str] = (), rows: Iterable[Sequence[object]] = ()
) -> None:
    """`value` whole as JSON or YAML, or `rows` of it as a table. Never cut to the width of a terminal, so that a
    table in a pipe holds the same as one on a screen."""
    match output:
        case Output.TABLE:
            _print_table(headings, [[_cell(cell) for cell in row] for row in rows])
        case Output.JSON:
            print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        case Output.YAML:
            print(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), end="")


def print_error(sentence: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)


def _print_table(headings: Sequence[str], rows: list[list[str]]) -> None:
    lines = [[heading.upper() for heading in headings], *rows] if headings else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
