"""`goqueue pipeline compact`: key compaction of topics at rest."""

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


def compact(
    path: Annotated[
        str, typer.Option("--path", help="A stopped broker's data folder, or a copy.", show_default=False)
    ],
    topics: Annotated[
        list[str] | None, typer.Argument(help="The topics; all that are to be compacted if none is named.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also topics whose cleanup.policy does not compact.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would stay.")] = False,
    keys: Annotated[
        int, typer.Option("--keys", help="Keys in memory at once, about 50 bytes each, in each task.", min=1)
    ] = 4_000_000,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compact topics at rest: of records with the same key only the last stays. The broker must be stopped, and starts on the folder afterwards."""
    check_installed()
    from goqueue.pipeline.jobs import compact as job  # with Spark behind it

    request = job.CompactRequest(path, topics or (), is_forced=force, is_dry=dry_run, key_count_max=keys)
    job.check(request)
    with spark_session("compact", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
