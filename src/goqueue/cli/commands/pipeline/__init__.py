"""`goqueue pipeline`: jobs over bulk data and declarative pipelines, on Spark."""

from __future__ import annotations

import typer

from goqueue.cli.commands.pipeline import archive

app = typer.Typer(no_args_is_help=True, help="Run jobs and pipelines over topics, on Spark.")
app.command("archive")(archive.archive)
