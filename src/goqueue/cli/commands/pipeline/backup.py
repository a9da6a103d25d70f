"""`goqueue pipeline backup`: backups of a data folder, and whether they are whole."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.common import (
    ConfOption,
    MasterOption,
    RemoteOption,
    check_installed,
    show_report,
    spark_session,
)
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output

PlaceArgument = Annotated[
    str, typer.Argument(help="The folder or object store of the backups.", show_default=False)
]

app = typer.Typer(no_args_is_help=True, help="Take, list, verify and remove backups of a data folder.")


@app.command()
def create(
    path: Annotated[
        str,
        typer.Option("--path", help="The data folder; its broker may run meanwhile.", show_default=False),
    ],
    to: Annotated[
        str, typer.Option("--to", help="The folder or object store of the backups.", show_default=False)
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Read everything, and every piece there is, again.")
    ] = False,
    keep_damage: Annotated[
        bool, typer.Option("--keep-damage", help="Back up damaged segments as they are, rather than stop.")
    ] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take the next backup: all topics and all that the broker knows. Only what is new since the last is written."""
    check_installed()
    from goqueue.pipeline.jobs import backup as job  # with Spark behind it

    request = job.BackupRequest(path, to, is_full=full, keeps_damage=keep_damage)
    with spark_session("backup", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)


@app.command("list")
def list_them(place: PlaceArgument, output: OutputOption = Output.TABLE) -> None:
    """List the backups that are there."""
    check_installed()
    from goqueue.pipeline.jobs import backup as job

    show_report(job.list_backups(place), output)


@app.command()
def prune(
    place: PlaceArgument,
    keep: Annotated[
        int, typer.Option("--keep", help="How many of the newest stay.", min=1, show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove old backups, and the pieces that none of the others needs."""
    check_installed()
    from goqueue.pipeline.jobs import backup as job

    show_report(job.prune_backups(place, keep, is_dry=dry_run), output)


@app.command()
def verify(
    place: PlaceArgument,
    backup: Annotated[
        int | None, typer.Option("--backup", help="Its number; the newest if not given.")
    ] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read a backup whole: every piece against its digest, every batch against its checksum. Exit code 1 if anything is wrong."""
    check_installed()
    from goqueue.pipeline.jobs import backup as job

    with spark_session("backup verify", master, remote, conf) as spark:
        report = job.run_verify(spark, place, backup)
    show_report(report, output)
