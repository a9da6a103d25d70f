"""Options that many commands share. They may stand before the command or after it; the latter wins."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from goqueue.cli.output import Output

URL_DEFAULT = "http://127.0.0.1:8080"


class Failure(Exception):
    """A command did not do what it was asked to; the sentence says why. Exit code 1."""


def _url_in_force(context: typer.Context, given: str | None) -> str:
    url = given or str(context.find_root().params.get("url") or URL_DEFAULT)
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        is_right = False
    if not is_right:
        raise typer.BadParameter(f"{url!r} is not a broker's address; write {URL_DEFAULT}")
    return url


def _output_in_force(context: typer.Context, given: Output) -> Output:
    source = context.get_parameter_source("output")
    if source is None or source.name != "DEFAULT":
        return given
    return Output(context.find_root().params.get("output", given))


UrlOption = Annotated[
    str, typer.Option("--url", help="The broker's address.", callback=_url_in_force, show_default=False)
]
OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="How to print.", callback=_output_in_force, show_default=False),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask before something changes."""
    if is_confirmed:
        return
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort:  # nobody there to answer
        print(file=sys.stderr)
    if not is_confirmed:
        raise Failure("nothing was changed; answer y or give --yes")


def parse_pairs(texts: list[str], what: str) -> dict[str, str]:
    """NAME=VALUE options as a dict."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not a {what}; write NAME=VALUE")
        pairs[name] = value
    return pairs
