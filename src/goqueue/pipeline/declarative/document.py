"""A YAML file as structs, with every problem that it has at once, each with its line.

YAML is read safely: plain values only. Aliases are refused, because a small file of them can be a large document, and a key
that stands twice is refused, because one of the two would silently not count.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
import yaml

from goqueue.pipeline.declarative.problems import PipelineFileError, Problem, near, shown
from goqueue.pipeline.declarative.spec import Definition, PipelineSpec

FILE_BYTES_MAX: Final = 1 << 20
_EXPECTED = re.compile(r"Expected `(.+?)`")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

T = TypeVar("T")


def read_text(file: Path) -> str:
    """The text of a pipeline file, within the limit."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise PipelineFileError(str(file), [Problem("", f"it has more than {FILE_BYTES_MAX} bytes")])
        return data.decode()
    except OSError as error:
        raise PipelineFileError(str(file), [Problem("", f"it cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise PipelineFileError(str(file), [Problem("", f"it is not UTF-8 text: {error}")]) from None


def read_yaml(file: Path, text: str, environment: Mapping[str, str] = os.environ) -> Definition:
    """The pipeline in a YAML file, or an error with all that is wrong with its structure."""
    root = _compose(file, text)
    problems: list[Problem] = []
    lines: dict[str, int] = {}
    texts: dict[str, int] = {}
    value = _plain(root, "", lines, texts, problems)
    if problems:
        raise PipelineFileError(str(file), problems)
    return definition_of(value, file, lines, texts, environment)


def definition_of(
    value: object, file: Path, lines: dict[str, int], texts: dict[str, int], environment: Mapping[str, str]
) -> Definition:
    """The pipeline that plain values describe, whatever they were written in."""
    problems: list[Problem] = []
    filled = _with_variables(value, environment, problems)
    spec = read_struct(filled, PipelineSpec, "", problems)
    if spec is None or problems:
        nothing = Definition(PipelineSpec(name="", sources=[], sinks=[]), file, lines)
        placed = [Problem(found.path, found.sentence, nothing.line_of(found.path)) for found in problems]
        raise PipelineFileError(str(file), placed)
    return Definition(spec, file, lines, texts)


def read_struct(value: object, kind: type[T], path: str, problems: list[Problem]) -> T | None:
    """Each field on its own, so that one wrong value does not hide the next."""
    if not isinstance(value, dict):
        problems.append(Problem(path, f"it is {shown(value)}; it must be a mapping of {_fields_of(kind)}"))
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}  # type: ignore[arg-type]  # a Struct
    count_before = len(problems)
    problems += [
        Problem(_join(path, str(name)), f"there is no field {name!r} here; {near(str(name), fields)}")
        for name in value
        if name not in fields
    ]
    found: dict[str, object] = {}
    for name, field in fields.items():
        if name in value:
            found[field.name] = _read_field(value[name], field.type, _join(path, name), problems)
        elif field.required:
            problems.append(Problem(path, f"the field {name!r} is missing"))
    return kind(**found) if len(problems) == count_before else None


def _read_field(
    value: object, kind: Any, path: str, problems: list[Problem]
) -> object:  # Any: a type, as annotated
    struct = _struct_in(kind)
    if struct is not None and isinstance(value, dict):
        return read_struct(value, struct, path, problems)
    if get_origin(kind) is list and (inner := _struct_in(get_args(kind)[0])) is not None:
        if not isinstance(value, list):
            problems.append(Problem(path, f"it is {shown(value)}; it must be a list"))
            return None
        return [read_struct(part, inner, f"{path}[{index}]", problems) for index, part in enumerate(value)]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problems.append(Problem(path, _sentence(value, kind, str(error))))
        return None


def _sentence(value: object, kind: Any, error: str) -> str:  # Any: a type, as annotated
    words = [word for part in _members(kind) for word in get_args(part) if isinstance(word, str)]
    if words:
        return f"it is {shown(value)}; it must be {' or '.join(words)}"
    expected = _EXPECTED.search(error)
    kinds = expected[1].replace(" | null", "") if expected else "something else"
    quotes = "; write it in quotes" if kinds == "str" and isinstance(value, int | float) else ""
    return (
        f"it is {shown(value)}; it must be {kinds.replace('str', 'text').replace('array', 'a list')}{quotes}"
    )


def _members(kind: Any) -> tuple[Any, ...]:  # Any: a type, as annotated
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _struct_in(kind: Any) -> type[Any] | None:  # Any: a type, as annotated
    found = [part for part in _members(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    return found[0] if found else None


def _fields_of(kind: Any) -> str:  # Any: a struct
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _compose(file: Path, text: str) -> yaml.Node:
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise PipelineFileError(
                str(file), [Problem("", "it has YAML aliases (*name); write the value out")]
            )
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        raise PipelineFileError(str(file), [Problem("", f"it is not YAML: {error.problem}", line)]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise PipelineFileError(str(file), [Problem("", f"it is not YAML: {error}")]) from None
    if root is None:
        raise PipelineFileError(str(file), [Problem("", "it is empty; it needs name, sources and sinks")])
    return root


def _plain(
    node: yaml.Node, path: str, lines: dict[str, int], texts: dict[str, int], problems: list[Problem]
) -> object:
    """The values of a document, noting lines on the way."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [
            _plain(part, f"{path}[{index}]", lines, texts, problems) for index, part in enumerate(node.value)
        ]
    if not isinstance(node, yaml.MappingNode):
        texts[path] = node.start_mark.line + (2 if getattr(node, "style", None) in ("|", ">") else 1)
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            problems.append(Problem(path, f"it cannot be read: {error}", node.start_mark.line + 1))
            return None
    found: dict[str, object] = {}
    for key, value in node.value:
        name, line = str(getattr(key, "value", "")), key.start_mark.line + 1
        inner = _join(path, name)
        if name in found:
            problems.append(Problem(inner, f"{name!r} stands here twice", line))
        lines[inner] = line
        found[name] = _plain(value, inner, lines, texts, problems)
    return found


def _with_variables(value: object, environment: Mapping[str, str], problems: list[Problem]) -> object:
    """`${NAME}` in the broker's settings is taken from the environment: secrets do not belong into files."""
    if not isinstance(value, dict) or not isinstance(value.get("broker"), dict):
        return value

    def filled(part: object, path: str) -> object:
        if isinstance(part, dict):
            return {name: filled(inner, f"{path}.{name}") for name, inner in part.items()}
        if not isinstance(part, str):
            return part
        missing = [name for name in _VARIABLE.findall(part) if name not in environment]
        problems.extend(Problem(path, f"the environment has no variable {name}") for name in missing)
        return _VARIABLE.sub(lambda match: environment.get(match[1], ""), part)

    return {**value, "broker": filled(value["broker"], "broker")}
