"""What each configuration source says, before anything is checked: pairs of a key's name and a raw value."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from goqueue.cli.config_keys import ENVIRONMENT_PREFIX, KEY_BY_ENVIRONMENT, SECTIONS

# Read by other parts of the program; they configure no broker.
OTHER_VARIABLES = frozenset({"GOQUEUE_PURE_PYTHON", "GOQUEUE_URL"})
# Flags that are shorter than the name of their key.
_FLAGS = {"cluster.listen": "--cluster", "cluster.peers": "--peers"}


class Raw(NamedTuple):
    """One value as it was written. `name` is that of a key, or whatever stood in its place."""

    source: str
    written: str
    name: str
    value: object
    typed: bool


class SourceUnreadable(Exception):
    """The file as a whole is no use; the sentence says why."""


def read_file(path: str) -> list[Raw]:
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise SourceUnreadable(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # bad TOML, bad UTF-8, or a number with thousands of digits
        raise SourceUnreadable(f"{path} is not TOML: {error}") from error
    return [Raw(path, name, name, value, typed=True) for name, value in _flatten(tables, "")]


def read_environment(environment: Mapping[str, str]) -> list[Raw]:
    raws = []
    for variable, value in sorted(environment.items()):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES:
            key = KEY_BY_ENVIRONMENT.get(variable)
            raws.append(Raw("environment", variable, key.name if key else variable, value, typed=False))
    return raws


def read_flags(flags: Mapping[str, str | None]) -> list[Raw]:
    """`flags` maps key names to what was given on the command line, None where nothing was."""
    return [
        Raw("command line", _FLAGS.get(name, f"--{name.replace('_', '-')}"), name, value, typed=False)
        for name, value in flags.items()
        if value is not None
    ]


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Names with dots for tables, so that `retention.ms = 1` means the same with and without quotes. An empty
    table that is none of ours comes out as a value, or a misspelt heading would go unnoticed."""
    for name, value in table.items():
        path = prefix + name
        if isinstance(value, Mapping) and (value or path in SECTIONS):
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value
