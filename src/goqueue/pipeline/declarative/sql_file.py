"""A pipeline as SQL: statements that Spark's own grammar knows, given the meaning of a pipeline.

    SET pipeline.trigger = every 10 seconds;                        the pipeline, the broker, Spark
    CREATE TEMPORARY VIEW orders (id BIGINT, at TIMESTAMP)          a source, with the columns of its values
        USING goqueue OPTIONS (topic 'orders', format 'json');
    CREATE TEMPORARY VIEW paid AS SELECT ...;                       a view
    INSERT INTO topic.`orders-paid` WITH (key = 'id') SELECT ...;   a sink

It is compiled into the same structs as YAML, so everything else is shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from goqueue.pipeline.declarative import spec
from goqueue.pipeline.declarative.document import definition_of
from goqueue.pipeline.declarative.problems import PipelineFileError, Problem, near, shown
from goqueue.pipeline.declarative.spec import Definition
from goqueue.pipeline.declarative.sql_text import Statement, Token, line_of, statements, tokens

_PIPELINE_SETTINGS: Final = ("name", "checkpoint", "trigger")
_SOURCE_FIELDS: Final = ("topic", "topics", "path", "format", "avro_schema", "bad_rows", "stream")
_SINK_FIELDS: Final = ("name", "format", *spec.EXPRESSIONS, "partition_by", "mode", "trigger")
_LISTS: Final = ("topics", "partition_by")
_SET = re.compile(r"SET\s+([\w.\-]+)\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)


class _Flaw(Exception):
    """What is wrong with a statement; the place is known further out."""


class _Clause(NamedTuple):
    """Something in parentheses: its tokens, and the index behind it."""

    inside: Sequence[Token]
    end: int


@dataclass(slots=True)
class _Draft:
    """The document as it grows, statement by statement."""

    text: str
    document: dict[str, object] = field(default_factory=dict)
    broker: dict[str, object] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    sources: list[dict[str, object]] = field(default_factory=list)
    views: list[dict[str, object]] = field(default_factory=list)
    sinks: list[dict[str, object]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)


def read_sql(file: Path, text: str, environment: Mapping[str, str] = os.environ) -> Definition:
    """The pipeline in a `.sql` file, or an error with every statement that is none."""
    draft = _Draft(text)
    problems = []
    for statement in statements(text):
        try:
            _read_statement(draft, statement)
        except _Flaw as flaw:
            problems.append(Problem("", str(flaw), line_of(text, statement.start)))
    if problems:
        raise PipelineFileError(str(file), problems)
    document = {
        "name": re.sub(r"[^A-Za-z0-9_-]", "-", file.stem),
        **draft.document,
        "broker": draft.broker,
        "settings": draft.settings,
        "sources": draft.sources,
        "views": draft.views,
        "sinks": draft.sinks,
    }
    return definition_of(document, file, draft.lines, draft.texts, environment)


def _read_statement(draft: _Draft, statement: Statement) -> None:
    parts = tokens(statement.text)
    words = [part.word for part in parts[:6]]
    if words[0] == "SET":
        _read_setting(draft, statement.text)
    elif words[:2] == ["INSERT", "INTO"]:
        _read_insert(draft, statement, parts[3:] if words[2:3] == ["TABLE"] else parts[2:])
    elif words[0] == "CREATE":
        rest = parts[3:] if words[1:3] == ["OR", "REPLACE"] else parts[1:]
        if len(rest) < 4 or rest[0].word not in ("TEMPORARY", "TEMP") or rest[1].word != "VIEW":
            raise _Flaw(
                "only views are created here: write CREATE TEMPORARY VIEW name AS SELECT ... or USING ..."
            )
        _read_view(draft, statement, rest[2:])
    else:
        known = ("SET", "CREATE TEMPORARY VIEW", "INSERT INTO")
        raise _Flaw(f"a statement begins with {shown(parts[0].text)}; write {', '.join(known)}")


def _read_setting(draft: _Draft, text: str) -> None:
    found = _SET.fullmatch(text)
    if found is None:
        raise _Flaw(f"{shown(text)} is no setting; write SET name = value")
    name, value = found[1], found[2].strip().strip("'\"`")
    place, _, rest = name.partition(".")
    if place == "pipeline" and rest in _PIPELINE_SETTINGS:
        draft.document[rest] = value
    elif name == "broker.bootstrap":
        draft.broker["bootstrap"] = value
    elif place == "broker" and rest:
        options = draft.broker.setdefault("options", {})
        if isinstance(options, dict):
            options[rest] = value
    elif place == "spark" and rest:
        draft.settings[name] = value
    else:
        known = [*(f"pipeline.{setting}" for setting in _PIPELINE_SETTINGS), "broker.bootstrap"]
        raise _Flaw(
            f"there is no setting {name!r}; {near(name, known)} (and spark.*, and broker.* for its options)"
        )


def _read_view(draft: _Draft, statement: Statement, parts: Sequence[Token]) -> None:
    name = parts[0].name
    schema = _clause(parts, 1)
    rest = parts[schema.end :] if schema else parts[1:]
    if name is None or not rest:
        raise _Flaw("a view has a name: CREATE TEMPORARY VIEW name AS SELECT ...")
    if rest[0].word == "AS" and len(rest) > 1:
        _add_query(draft, name, statement, rest[1])
    elif rest[0].word == "USING" and len(rest) > 1:
        columns = _between(statement.text, schema) if schema else None
        _add_source(draft, name, columns, rest[1:], line_of(draft.text, statement.start))
    else:
        raise _Flaw(
            f"{shown(rest[0].text)} stands behind the name of view {name}; write AS SELECT ... or USING ..."
        )


def _add_query(draft: _Draft, name: str, statement: Statement, first: Token) -> None:
    """The text is moved to its own column, so that positions in Spark's errors are those of the file."""
    start = statement.start + first.start
    column = start - (draft.text.rfind("\n", 0, start) + 1)
    path = f"views[{len(draft.views)}]"
    draft.lines[path] = line_of(draft.text, statement.start)
    draft.texts[f"{path}.sql"] = line_of(draft.text, start)
    draft.views.append({"name": name, "sql": " " * column + statement.text[first.start :]})


def _add_source(draft: _Draft, name: str, columns: str | None, rest: Sequence[Token], line: int) -> None:
    provider = (rest[0].name or "").lower()
    if provider not in ("goqueue", *spec.FILE_FORMATS):
        raise _Flaw(
            f"view {name} is USING {shown(rest[0].text)}; {near(provider, ('goqueue', *spec.FILE_FORMATS))}"
        )
    clause = _clause(rest, 2) if len(rest) > 1 and rest[1].word == "OPTIONS" else None
    if clause is None or clause.end != len(rest):
        raise _Flaw(
            f"view {name} has no options; write OPTIONS (topic 'orders') or OPTIONS (path 'folder') at its end"
        )
    given = _options(clause.inside)
    source: dict[str, object] = {"name": name}
    if columns is not None:
        source["schema"] = columns
    if provider != "goqueue":
        source["format"] = provider
    letters = {
        part: given.pop(f"dead_letter_{part}") for part in ("topic", "path") if f"dead_letter_{part}" in given
    }
    if letters:
        source["bad_rows"] = letters
    draft.lines[f"sources[{len(draft.sources)}]"] = line
    draft.sources.append(source | _fields(given, _SOURCE_FIELDS))


def _read_insert(draft: _Draft, statement: Statement, parts: Sequence[Token]) -> None:
    if len(parts) < 4 or parts[1].text != "." or parts[0].name is None or parts[2].name is None:
        raise _Flaw("rows go INTO topic.name, INTO console.name, or INTO parquet.`folder`")
    kind, target = parts[0].name.lower(), parts[2].name
    given: dict[str, str] = {}
    query = 3
    if parts[3].word == "WITH" and len(parts) > 4 and parts[4].text == "(":
        clause = _clause(parts, 4)
        if clause is None or clause.end >= len(parts):
            raise _Flaw(f"there is no query behind INSERT INTO {kind}.{target}")
        given, query = _options(clause.inside), clause.end
    sink: dict[str, object] = {"name": re.sub(r"[^A-Za-z0-9_-]", "_", target.strip("/"))[-64:]}
    if kind == "topic":
        sink["topic"] = target
    elif kind == "console":
        sink["console"] = True
    elif kind in spec.FILE_FORMATS:
        sink |= {"path": target, "format": kind}
    else:
        raise _Flaw(f"there is no sink {kind!r}; {near(kind, ('topic', 'console', *spec.FILE_FORMATS))}")
    sink |= _fields(given, _SINK_FIELDS)
    sink["from"] = f"into_{re.sub(r'[^A-Za-z0-9_]', '_', str(sink['name']))}"
    draft.lines[f"sinks[{len(draft.sinks)}]"] = line_of(draft.text, statement.start)
    draft.sinks.append(sink)
    _add_query(draft, str(sink["from"]), statement, parts[query])


def _fields(given: Mapping[str, str], names: Sequence[str]) -> dict[str, object]:
    """Options that are fields of ours, and the others as options."""
    found: dict[str, object] = {"options": {name: text for name, text in given.items() if name not in names}}
    for name in names:
        if name not in given:
            continue
        if name == "stream":
            found[name] = given[name].lower() == "true"
        elif name in _LISTS:
            found[name] = [part.strip() for part in given[name].split(",")]
        else:
            found[name] = given[name]
    return found


def _options(parts: Sequence[Token]) -> dict[str, str]:
    """`name 'value', a.b = 5`: the value is the last token, the name is what stands before it."""
    found: dict[str, str] = {}
    part: list[Token] = []
    for token in [*parts, Token("mark", ",", 0)]:
        if token.text != "," or token.kind != "mark":
            part.append(token)
            continue
        names = [piece for piece in part[:-1] if piece.text != "="]
        if not names:
            raise _Flaw("an option is a name and a value: OPTIONS (topic 'orders', format 'json')")
        name = "".join(_unquoted(piece) for piece in names)
        if name in found:
            raise _Flaw(f"the option {name!r} stands there twice")
        found[name] = _unquoted(part[-1])
        part = []
    return found


def _unquoted(token: Token) -> str:
    if token.kind == "text":
        return re.sub(r"\\(.)|''", lambda match: match[1] or "'", token.text[1:-1])
    return token.name if token.name is not None else token.text


def _clause(parts: Sequence[Token], start: int) -> _Clause | None:
    """What stands in the parentheses that begin there."""
    if start >= len(parts) or parts[start].text != "(":
        return None
    depth = 0
    for index in range(start, len(parts)):
        if parts[index].text == "(":
            depth += 1
        elif parts[index].text == ")":
            depth -= 1
            if depth == 0:
                return _Clause(parts[start + 1 : index], index + 1)
    raise _Flaw("a parenthesis is not closed")


def _between(text: str, clause: _Clause) -> str:
    """The text of a clause as it was written; types such as DECIMAL(10, 2) have marks of their own."""
    if not clause.inside:
        raise _Flaw(
            "the list of columns is empty; leave the parentheses out or write id BIGINT, at TIMESTAMP"
        )
    last = clause.inside[-1]
    return text[clause.inside[0].start : last.start + len(last.text)]
