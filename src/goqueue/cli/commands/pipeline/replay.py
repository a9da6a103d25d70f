"""`goqueue pipeline replay`: records of a topic or of its archive once more into a topic."""

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
from goqueue.cli.options import Failure, OutputOption, parse_pairs
from goqueue.cli.output import Output


def replay(
    topic: Annotated[str, typer.Argument(help="The topic to read.", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", help="The topic to write, which must exist.", show_default=False)
    ],
    lake: Annotated[str | None, typer.Option("--lake", help="Read its archive in this lake instead.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    from_offsets: Annotated[str | None, typer.Option(help='earliest, or JSON: {"topic": {"0": 23}}.')] = None,
    to_offsets: Annotated[str | None, typer.Option(help="latest, or JSON; those are left out.")] = None,
    where: Annotated[str | None, typer.Option(help="A condition in SQL over the columns of a read.")] = None,
    keep_partitions: Annotated[
        bool, typer.Option(help="Each record into the partition it came from.")
    ] = False,
    target: Annotated[str | None, typer.Option(help="Another broker to write to, HOST:PORT.")] = None,
    sink_option: Annotated[
        list[str] | None, typer.Option(help="An option of the goqueue sink, NAME=VALUE. May be repeated.")
    ] = None,
    bootstrap: BootstrapOption = None,
    path: PathOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write records of a topic into another once more, with their own keys, headers and times, all of them or none."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import replay as job  # with Spark behind it

    bounds = {"startingOffsets": from_offsets, "endingOffsets": to_offsets}
    if path is not None and target is None:
        raise Failure("a replay from a folder needs --target, the broker to write to")
    request = job.ReplayRequest(
        origin,
        job.to_write_to(origin, target),
        topic,
        to,
        lake=lake,
        where=where,
        time_min_ms=instant_ms(since, "--since"),
        time_max_ms=instant_ms(until, "--until"),
        bounds={name: text for name, text in bounds.items() if text is not None},
        keeps_partitions=keep_partitions,
        sink_options=parse_pairs(sink_option or [], "option of the sink"),
    )
    with spark_session("replay", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
