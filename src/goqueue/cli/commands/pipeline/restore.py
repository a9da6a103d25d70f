"""`goqueue pipeline restore`: a backup into an empty data folder."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.backup import PlaceArgument
from goqueue.cli.commands.pipeline.common import (
    ConfOption,
    MasterOption,
    RemoteOption,
    check_installed,
    show_report,
    spark_session,
)
from goqueue.cli.commands.pipeline.instants import instant_ms
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output


def restore(
    place: PlaceArgument,
    to: Annotated[
        str, typer.Option("--to", help="The data folder: empty, or not there yet.", show_default=False)
    ],
    backup: Annotated[
        int | None, typer.Option("--backup", help="Its number; the newest if not given.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="As it was at this time, RFC 3339 or milliseconds."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic, with all groups. May be repeated.")
    ] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write a backup into a data folder, each batch checked. A broker can be started on it."""
    check_installed()
    from goqueue.pipeline.jobs import restore as job  # with Spark behind it

    request = job.RestoreRequest(place, to, backup, instant_ms(until, "--until"), topic or ())
    job.check(request)
    with spark_session("restore", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
