"""What Spark says, in one sentence: of SQL that it does not understand, and of queries that failed.

Errors arrive wrapped: a Python error of a worker inside a task's inside a job's inside a query's. The innermost is the cause; the
rest is where it went through.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

# PySpark turns Java's exceptions into its own where it knows their class, and now and then does not.
SPARK_ERRORS: Final = (PySparkException, Py4JError)
_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\.?")
_PLACE = re.compile(r"\s*[;(]?\s*\(?line (\d+),? pos (\d+)\)?;?\s*$")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)+(?P<name>[\w$]+): (?P<text>.+)$", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<text>.+?)(?: SQLSTATE.*)?$", re.MULTILINE)
_PYTHON_ERROR = re.compile(r"^(?P<module>(?:\w+\.)*)(?P<name>\w+): (?P<text>.+)$")
_SENTENCE_CHARACTERS_MAX: Final = 1_000
_NOISE = "SQLQueryContextLogger"  # writes every error with Java's whole stack, which is ours to tell


class Told(NamedTuple):
    """A sentence, and where in the SQL: lines count from 1, columns too."""

    sentence: str
    line: int | None = None
    column: int | None = None


def told(error: BaseException) -> Told:
    """Of an error of Spark's parser or analyser: what it says, without plans and codes."""
    text = _message(error).strip()
    head = re.split(r"\n\s*\n== SQL|;\s*\n'|\n\s*[+'~]", text, maxsplit=1)[0].strip()
    first = " ".join(line.strip() for line in head.splitlines()[:1])
    place = _PLACE.search(first)
    sentence = _PLACE.sub("", first)
    sentence = _STATE.sub("", _CLASS.sub("", sentence)).strip().rstrip(".;")
    if place is None:
        return Told(sentence[:_SENTENCE_CHARACTERS_MAX])
    return Told(sentence[:_SENTENCE_CHARACTERS_MAX], int(place[1]), int(place[2]) + 1)


def _message(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage())
    return str(error)


def root_cause(text: str) -> str:
    """The innermost sentence of a failed query's error."""
    raised = _RAISED.search(text)
    if raised is not None:
        return _short(raised["text"])
    python = _last_python_line(text)
    if python is not None:
        return _short(python)
    causes = list(_CAUSE.finditer(text))
    if causes:
        return _short(f"{causes[-1]['name']}: {causes[-1]['text']}")
    said = _java_said(text)
    first = next((line.strip() for line in said.splitlines() if line.strip()), "no reason was given")
    return _short(first)


def _java_said(text: str) -> str:
    """Without py4j's first line, which only has the name of an object: Java's own sentence follows it."""
    call, found, said = text.partition("\n: ")
    return said if found and call.startswith("An error occurred while calling") else text


def _last_python_line(text: str) -> str | None:
    """The line that ends the last Python traceback. Our own errors are sentences, so their class is left out. Spark's runner of
    sources stumbles over its own variable when a reader cannot be made: then the one before is meant."""
    found = None
    is_inside = False
    for line in text.splitlines():
        if "Traceback (most recent call last)" in line:
            is_inside = True
        elif is_inside and (match := _PYTHON_ERROR.match(line)):
            is_inside = False
            if match["name"] != "UnboundLocalError" or found is None:
                is_ours = match["module"].startswith("goqueue.")
                found = match["text"] if is_ours else f"{match['name']}: {match['text']}"
    return found


def _short(sentence: str) -> str:
    plain = _STATE.sub("", _CLASS.sub("", sentence.strip()))
    return plain if len(plain) <= _SENTENCE_CHARACTERS_MAX else f"{plain[:_SENTENCE_CHARACTERS_MAX]}..."


@contextmanager
def quiet() -> Iterator[None]:
    """While errors are expected and told in our own words."""
    logger = PySparkLogger.getLogger(
        _NOISE
    )  # by any other way it would be of a class that PySpark cannot use
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
