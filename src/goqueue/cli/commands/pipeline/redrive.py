"""`goqueue pipeline redrive`: dead letters back to work, in bulk."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.common import (
    BootstrapOption,
    ConfOption,
    MasterOption,
    ReadOption,
    RemoteOption,
    origin_of,
    show_report,
    spark_session,
)
from goqueue.cli.options import OutputOption, UrlOption
from goqueue.cli.output import Output
from goqueue.model.dead_letter_headers import REDRIVES_MAX


def redrive(
    topic: Annotated[str, typer.Argument(help="The topic of dead letters.", show_default=False)],
    where: Annotated[
        str | None, typer.Option("--where", help="A condition in SQL over the columns of dead letters.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="A topic, instead of where each came from.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many may go.", min=1)] = None,
    rate: Annotated[int | None, typer.Option("--rate", help="How many per second.", min=1)] = None,
    max_redrives: Annotated[
        int, typer.Option(help="A message that was sent back so often already stays.", min=1, max=1_000)
    ] = REDRIVES_MAX,
    force: Annotated[bool, typer.Option("--force", help="Also what was sent back too often.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    url: UrlOption = "",
    bootstrap: BootstrapOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send dead letters back, each once: what went before does not go again, however often this runs."""
    origin = origin_of(bootstrap, None, option)
    from goqueue.pipeline.jobs import redrive as job  # with Spark behind it

    request = job.RedriveRequest(
        origin,
        url,
        topic,
        where=where,
        to=to,
        limit=limit,
        rate=rate,
        redrives_max=max_redrives,
        force=force,
        dry_run=dry_run,
    )
    with spark_session("redrive", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
