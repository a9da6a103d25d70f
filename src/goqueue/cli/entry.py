"""What the commands `goqueue` and `goqueue-admin` have in common: their shared options, and how they end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from goqueue.cli.options import URL_DEFAULT, Failure
from goqueue.cli.output import Output, print_error
from goqueue.client.rest import ApiError, Unreachable
from goqueue.model.errors import GoQueueError
from goqueue.pipeline.errors import PipelineError


def new_app(name: str, text: str) -> typer.Typer:
    # Plain help and plain errors: one sentence that fits a log, and no 100 ms to load a renderer.
    app = typer.Typer(
        name=name,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=text,
    )
    app.callback()(_common)
    return app


def run_app(app: typer.Typer, name: str) -> None:
    """Errors of the broker, of the user and of the machine end as one sentence on stderr; anything else is a
    bug and shows its traceback."""
    try:
        app(prog_name=name)
    except (ApiError, Unreachable, Failure, GoQueueError, PipelineError, OSError) as error:
        print_error(str(error))
        sys.exit(1)


def _common(
    url: Annotated[
        str, typer.Option("--url", envvar="GOQUEUE_URL", help="The broker's address.")
    ] = URL_DEFAULT,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """The values are read by the commands' own options of the same names."""
