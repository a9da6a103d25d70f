"""As much of SQL as can be told without a parser: where statements end, and which tables a query reads.

Spark's own parser decides what is right. This finds the order in which views have to be made, and names that nothing has, before
Spark is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'?|[rR]?"(?:[^"\\]|\\.|"")*"?)
  | (?P<quoted>`(?:[^`]|``)*`?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>\d[\w.]*)
  | (?P<space>\s+)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_AFTER_FROM = {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "UNION", "INTERSECT", "EXCEPT", "SELECT", "CLUSTER",
               "DISTRIBUTE", "SORT", "QUALIFY"}  # fmt: skip


class Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """The identifier, if it is one."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


class Statement(NamedTuple):
    """One statement without its semicolon. `start` is where it begins in the file."""

    text: str
    start: int


def tokens(sql: str) -> list[Token]:
    """Without comments and white space."""
    found = [Token(match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(sql)]
    return [token for token in found if token.kind not in ("comment", "space")]


def statements(sql: str) -> Iterator[Statement]:
    """Split at semicolons, those in texts and comments excepted. What has no word in it is none."""
    parts: list[Token] = []
    for token in [*tokens(sql), Token("mark", ";", len(sql))]:
        if token.text != ";" or token.kind != "mark":
            parts.append(token)
            continue
        if parts:
            start, end = parts[0].start, parts[-1].start + len(parts[-1].text)
            yield Statement(sql[start:end], start)
        parts = []


def line_of(text: str, position: int) -> int:
    """Lines count from 1."""
    return text.count("\n", 0, position) + 1


def tables_read(sql: str) -> list[str]:
    """Plain names behind FROM and JOIN, in order and once each: not those of the query's own WITH, nor functions, nor names
    with a dot, which are the catalog's."""
    found: list[str] = []
    parts = tokens(sql)
    own = _common_tables(parts)
    is_from = [False]  # for each open parenthesis: are we in a list of tables?
    for index, token in enumerate(parts):
        before = parts[index - 1] if index else Token("", "", 0)
        after = parts[index + 1] if index + 1 < len(parts) else Token("", "", 0)
        if token.text == "(":
            # FROM (a JOIN b ...) and STREAM(a) go on with a table; a subquery and a call begin anew.
            goes_on = before.word in ("FROM", "JOIN", "STREAM") or (is_from[-1] and before.text == ",")
            is_from.append(goes_on)
        elif token.text == ")" and len(is_from) > 1:
            is_from.pop()
        elif token.word in ("FROM", "JOIN") and before.word != "DISTINCT":
            is_from[-1] = True
        elif token.word in _AFTER_FROM:
            is_from[-1] = False
        is_place = before.word in ("FROM", "JOIN", "STREAM") or before.text in (",", "(")
        if is_from[-1] and is_place and token.name is not None and not _is_other(token, after):
            name = token.name
            if name.lower() not in own and name not in found:
                found.append(name)
    return found


def _is_other(token: Token, after: Token) -> bool:
    """A keyword, a function or a qualified name where a table could be."""
    is_keyword = token.word in ("LATERAL", "SELECT", "VALUES", "TABLE", "WITH", "STREAM", "FROM", "JOIN")
    return is_keyword or after.text in ("(", ".")


def _common_tables(parts: list[Token]) -> set[str]:
    """Names that the query defines itself: `WITH name AS (`, `, name (a, b) AS (`."""
    found = set()
    for index, token in enumerate(parts[:-2]):
        before = parts[index - 1] if index else Token("", "", 0)
        starts = before.word in ("WITH", "RECURSIVE") or before.text == ","
        if starts and token.name is not None:
            rest = parts[index + 1 :]
            if rest[0].text == "(":
                depth_end = next((i for i, part in enumerate(rest) if part.text == ")"), 0)
                rest = rest[depth_end + 1 :]
            if len(rest) > 1 and rest[0].word == "AS" and rest[1].text == "(":
                found.add(token.name.lower())
    return found
