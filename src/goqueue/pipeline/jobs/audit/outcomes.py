"""What can be said of a record under a schema."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

TEXT_LENGTH_MAX: Final = 300  # of a message or a path in a report


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"  # it was read, and is not what the schema asks for
    UNPARSABLE = "unparsable"  # it cannot be read at all
    TOMBSTONE = "tombstone"  # it has no value


class Outcome(NamedTuple):
    """`path` is a JSON pointer to the part that is wrong; empty for the whole document."""

    verdict: Verdict
    path: str = ""
    message: str = ""


class Judged(NamedTuple):
    """Of one value: under the schema, and under the new one if there is one."""

    now: Outcome
    new: Outcome | None = None


class Judge(Protocol):
    def judge(self, value: bytes | memoryview) -> Judged: ...


VALID: Final = Outcome(Verdict.VALID)
TOMBSTONE: Final = Outcome(Verdict.TOMBSTONE)


def invalid(message: str, path: str = "") -> Outcome:
    return Outcome(Verdict.INVALID, _cut(path), _cut(message))


def unparsable(message: str) -> Outcome:
    return Outcome(Verdict.UNPARSABLE, "", _cut(message))


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= TEXT_LENGTH_MAX else f"{flat[: TEXT_LENGTH_MAX - 1]}…"
