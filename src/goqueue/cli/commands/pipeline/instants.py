"""Times that several jobs take."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.options import Failure
from goqueue.model.duration import parse_instant_ms

SinceOption = Annotated[
    str | None, typer.Option("--since", help="Records from this time on, RFC 3339 or milliseconds.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Records before this time, RFC 3339 or milliseconds.")
]


def instant_ms(text: str | None, name: str) -> int | None:
    try:
        return None if text is None else parse_instant_ms(text)
    except ValueError as error:
        raise Failure(f"{name} is wrong: {error}") from None
