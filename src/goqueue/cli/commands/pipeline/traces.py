"""`goqueue pipeline traces`: latencies, slow messages, retry storms and deaths."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.common import (
    BootstrapOption,
    ConfOption,
    MasterOption,
    PathOption,
    ReadOption,
    RemoteOption,
    origin_of,
    show_report,
    spark_session,
)
from goqueue.cli.commands.pipeline.instants import SinceOption, UntilOption, instant_ms
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output


def traces(
    files: Annotated[
        list[str] | None, typer.Argument(help="Exported traces: files, folders or patterns of JSONL.")
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", help="Topics whose records carry traceparent, with commas.")
    ] = None,
    slow: Annotated[int, typer.Option(help="The slowest messages to show, at most.", min=0, max=10_000)] = 20,
    deliveries: Annotated[
        int, typer.Option(help="More deliveries of a message than this make a storm.", min=1)
    ] = 3,
    lake: Annotated[
        str | None, typer.Option("--lake", help="Read the topics' archives in this lake instead.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    bootstrap: BootstrapOption = None,
    path: PathOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell how long messages take, from exported traces, from topics, or from both."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import traces as job  # with Spark behind it
    from goqueue.pipeline.jobs.selection import Selection

    names = [name.strip() for name in topics.split(",") if name.strip()] if topics is not None else []
    records = (
        Selection(origin, names, lake, instant_ms(since, "--since"), instant_ms(until, "--until"))
        if topics is not None
        else None
    )
    request = job.TracesRequest(files or (), records, slow, deliveries)
    with spark_session("traces", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
