"""`goqueue pipeline archive`: topics into a lake of Parquet files, or of any format that the Spark at hand can write."""

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
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output


def archive(
    topics: Annotated[list[str], typer.Argument(help="The topics.", show_default=False)],
    lake: Annotated[
        str, typer.Option("--lake", help="The lake's folder or object store.", show_default=False)
    ],
    format: Annotated[
        str, typer.Option("--format", help="parquet, or what your Spark has: delta, iceberg ...")
    ] = "parquet",
    compression: Annotated[str, typer.Option(help="zstd, snappy, lz4, gzip or none.")] = "zstd",
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Stop where records were deleted before they were archived.")
    ] = True,
    merge_at: Annotated[
        int, typer.Option(help="Merge the small files of a date when there are so many; 0 never does.", min=0)
    ] = 8,
    bootstrap: BootstrapOption = None,
    path: PathOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what is new since the last run. Records and progress are committed together."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import archive as job  # with Spark behind it

    with spark_session("archive", master, remote, conf) as spark:
        if format == "parquet":
            request = job.ArchiveRequest(
                origin, topics, lake, compression, fails_on_loss=fail_on_data_loss, merge_at=merge_at
            )
            report = job.run(spark, request)
        else:
            from goqueue.pipeline.jobs import archive_stream  # only for other formats

            report = archive_stream.run(
                spark,
                archive_stream.StreamRequest(origin, topics, lake, format, fails_on_loss=fail_on_data_loss),
            )
    show_report(report, output)
