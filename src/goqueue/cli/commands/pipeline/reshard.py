"""`goqueue pipeline reshard`: a topic into one with another number of partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.common import (
    BootstrapOption,
    ConfOption,
    MasterOption,
    RemoteOption,
    origin_of,
    show_report,
    spark_session,
)
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output


def reshard(
    topic: Annotated[str, typer.Argument(help="The topic to read.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="The new topic; made if need be.", show_default=False)],
    partitions: Annotated[int, typer.Option("--partitions", help="Of the new topic.", show_default=False)],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", help="A folder that knows how far it has come.", show_default=False)
    ],
    bootstrap: BootstrapOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy a topic into one with more or fewer partitions, each record once, those of a key in order. Run again, it copies what is new."""
    origin = origin_of(bootstrap, None)
    from goqueue.pipeline.jobs import reshard as job  # with Spark behind it

    request = job.ReshardRequest(origin, topic, to, partitions, checkpoint)
    with spark_session("reshard", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
