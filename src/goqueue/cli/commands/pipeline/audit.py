"""`goqueue pipeline audit`: every record of topics against a schema."""

from __future__ import annotations

from enum import StrEnum
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


class Kind(StrEnum):
    JSON = "json"
    AVRO = "avro"


class Frame(StrEnum):
    AUTO = "auto"
    CONFLUENT = "confluent"
    SINGLE_OBJECT = "single-object"
    BARE = "bare"


def audit(
    topics: Annotated[list[str], typer.Argument(help="The topics.", show_default=False)],
    schema: Annotated[
        str, typer.Option("--schema", help="A file with JSON Schema or Avro.", show_default=False)
    ],
    new_schema: Annotated[
        str | None, typer.Option("--new-schema", help="Would this one break what is there?")
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option("--type", help="Of the schemas; by default .avsc is avro, others json.")
    ] = None,
    framing: Annotated[Frame, typer.Option(help="What stands before Avro values.")] = Frame.AUTO,
    samples: Annotated[int, typer.Option(help="Violations to show, at most.", min=0, max=1_000)] = 20,
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
    """Check every record against a schema; exit code 1 if one does not fit, or fits now and would not fit the new schema."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import audit as job  # with Spark behind it
    from goqueue.pipeline.jobs.selection import Selection

    said = None if kind is None else job.SchemaKind(kind.value)
    request = job.AuditRequest(
        Selection(origin, topics, lake, instant_ms(since, "--since"), instant_ms(until, "--until")),
        job.FileSchema(schema, said),
        None if new_schema is None else job.FileSchema(new_schema, said),
        job.Framing(framing.value),
        samples,
    )
    job.check(request)  # a wrong schema is said before Spark starts
    with spark_session("audit", master, remote, conf) as spark:
        report = job.run(spark, request)
    show_report(report, output)
