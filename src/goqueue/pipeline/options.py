"""Options of the data source: each is declared once, with how it is read, its default and a line for the docs.

Names are those that users of Spark's Kafka connector know. They are taken in any case, as Spark does, and with `kafka.` or
`goqueue.` before them. An option that nobody declared is refused, because a misspelt one would otherwise be obeyed
silently by not being obeyed. All problems are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar, cast

from goqueue.model.duration import parse_duration_ms
from goqueue.pipeline.errors import OptionError

PREFIXES = ("kafka.", "goqueue.")
HIDDEN = "(hidden)"
_NEAR_COUNT_MAX = 3

T = TypeVar("T")


@dataclass(frozen=True)  # slots and a generic class that is called with its type do not go together
class Option(Generic[T]):
    """One option. `read` makes the value of its text and raises ValueError with what would be right."""

    name: str
    read: Callable[[str], T]
    default: T
    doc: str
    also: tuple[str, ...] = ()  # other names of the same option
    is_secret: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one read or write: known ones only, each with a value that it can have."""

    values: Mapping[str, object]

    def __getitem__(self, option: Option[T]) -> T:
        return cast(T, self.values.get(option.name, option.default))

    def __contains__(self, option: Option[Any]) -> bool:  # Any: of whatever type
        return option.name in self.values


def parse_options(
    given: Mapping[str, str], declared: Iterable[Option[Any]]
) -> Given:  # Any: of whatever types
    """What was given, read. One error names every problem; values that are secret are never in it."""
    by_name = {name.lower(): option for option in declared for name in option.names}
    texts: dict[str, tuple[str, str]] = {}  # option to (name as given, text)
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, text in given.items():
        option = by_name.get(_bare(name, by_name))
        if option is None:
            problems.append(_unknown(name, by_name))
            continue
        if option.name in texts and texts[option.name][1] != text:
            problems.append(
                f"{texts[option.name][0]} and {name} are the same option with two values; give one"
            )
            continue
        texts[option.name] = (name, text)
        try:
            values[option.name] = option.read(text.strip())
        except ValueError as error:
            shown = HIDDEN if option.is_secret else repr(text)
            problems.append(f"{option.name} cannot be {shown}: {error}")
    if problems:
        raise OptionError("; ".join(problems))
    return Given(values)


def text(value: str) -> str:
    if not value:
        raise ValueError("it must not be empty")
    return value


def yes_or_no(value: str) -> bool:
    match value.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("write true or false")


def whole(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A whole number within bounds."""

    def read(value: str) -> int:
        if not value.removeprefix("-").isdecimal() or not least <= int(value) <= most:
            raise ValueError(
                f"write a whole number of at least {least}"
                + ("" if most == 2**63 - 1 else f" and at most {most}")
            )
        return int(value)

    return read


def duration_ms(value: str) -> int:
    return parse_duration_ms(value)


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of a few words, in any case."""

    def read(value: str) -> str:
        for word in allowed:
            if value.lower() == word.lower():
                return word
        raise ValueError(f"write {' or '.join(allowed)}")

    return read


def comma_list(value: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts):
        raise ValueError("write names with a comma between them")
    if len(set(parts)) != len(parts):
        raise ValueError("a name stands there twice")
    return parts


def json_object(value: str, example: str) -> dict[str, Any]:  # Any: whatever JSON has; the caller looks at it
    """A JSON object; its content is for the caller to check."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); write something like {example}") from None
    if not isinstance(found, dict):
        raise ValueError(f"write a JSON object such as {example}")
    return found


def _bare(name: str, by_name: Mapping[str, object]) -> str:
    """The name without a prefix, unless the whole is an option itself."""
    lowered = name.lower()
    if lowered in by_name:
        return lowered
    for prefix in PREFIXES:
        lowered = lowered.removeprefix(prefix)
    return lowered


def _unknown(name: str, by_name: Mapping[str, Option[Any]]) -> str:  # Any: of whatever types
    near = get_close_matches(_bare(name, by_name), by_name, n=_NEAR_COUNT_MAX, cutoff=0.6)
    meant = dict.fromkeys(by_name[found].name for found in near)
    if meant:
        return f"there is no option {name}; did you mean {' or '.join(meant)}?"
    foreign = "what only Kafka's clients have has no meaning here, leave it out; " if _is_kafkas(name) else ""
    return f"there is no option {name}; {foreign}there are {', '.join(sorted({o.name for o in by_name.values()}))}"


def _is_kafkas(name: str) -> bool:
    """Whether a job brings it along that used Spark's Kafka connector: its own, and those of Kafka's clients."""
    return name.lower().startswith(("kafka", "fetchoffset."))
