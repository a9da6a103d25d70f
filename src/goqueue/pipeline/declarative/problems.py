"""What is wrong with a pipeline file. Everything is found before anything is said: a person repairs a file once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from goqueue.pipeline.errors import PipelineError

_SHOWN_CHARACTERS_MAX = 80
_NEAR_COUNT_MAX = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Where in the file, as a path such as `sources[0].topic`, and one sentence. `line` counts from 1."""

    path: str
    sentence: str
    line: int | None = None


class PipelineFileError(PipelineError):
    """A pipeline file cannot be run as it is."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n".join(told(file, problem) for problem in problems))


def told(file: str, problem: Problem) -> str:
    place = file if problem.line is None else f"{file}:{problem.line}"
    return f"{place}: {problem.path}: {problem.sentence}" if problem.path else f"{place}: {problem.sentence}"


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant, else what there is."""
    names = list(known)
    by_lower = {found.lower(): found for found in names}
    found = get_close_matches(name.lower(), by_lower, n=_NEAR_COUNT_MAX, cutoff=0.6)
    if found:
        return f"did you mean {' or '.join(by_lower[lower] for lower in found)}?"
    return f"there are {', '.join(names)}" if names else "there are none"


def shown(value: object) -> str:
    """A value in a sentence: short, whatever it is."""
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:_SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"
