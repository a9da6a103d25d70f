"""`goqueue pipeline usage`: messages, bytes and storage per tenant, topic and hour, and what groups have read."""

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
from goqueue.cli.options import OutputOption, UrlOption
from goqueue.cli.output import Output


def usage(
    topics: Annotated[list[str] | None, typer.Argument(help="The topics; all if none.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="A new folder for the whole tables.")] = None,
    format: Annotated[str, typer.Option("--format", help="Of these tables: parquet or csv.")] = "parquet",
    previous: Annotated[
        str | None,
        typer.Option("--previous", help="The folder of an earlier report, to tell what groups read."),
    ] = None,
    broker: Annotated[bool, typer.Option(help="Ask the broker at --url for sizes and groups.")] = True,
    lake: Annotated[
        str | None, typer.Option("--lake", help="Count the topics' archives in this lake instead.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    url: UrlOption = "",
    bootstrap: BootstrapOption = None,
    path: PathOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Count messages and bytes per tenant, topic, group and hour. A tenant is what stands before the first dot of a topic's name."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import usage as job  # with Spark behind it

    asks_broker = broker and path is None and lake is None
    request = job.UsageRequest(
        origin,
        topics or (),
        lake=lake,
        url=url if asks_broker else None,
        time_min_ms=instant_ms(since, "--since"),
        time_max_ms=instant_ms(until, "--until"),
        to=to,
        format=format,
        previous=previous,
    )
    with spark_session("usage", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
