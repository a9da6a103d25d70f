"""`goqueue config`: what a broker started here and now would be told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from goqueue.cli.config import ConfigProblems, Loaded, load_config
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output, print_error, show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show the configuration.")

ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A TOML file.")]


@app.callback()
def family() -> None:
    """Keeps `show` a command of its own: typer would merge a single one into its family."""


@app.command("show")
def show_config(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Print every value in force and where it came from."""
    settings = load_or_exit(config, {}).settings
    show(
        {setting.key: {"value": setting.value, "source": setting.source} for setting in settings},
        output,
        headings=("key", "value", "source"),
        rows=settings,
    )


def load_or_exit(file: str | None, flags: Mapping[str, str | None]) -> Loaded:
    """The configuration, or all its problems on stderr and exit code 2."""
    try:
        return load_config(file=file, environment=os.environ, flags=flags)
    except ConfigProblems as error:
        for problem in error.problems:
            print_error(str(problem))
        raise typer.Exit(2) from error
