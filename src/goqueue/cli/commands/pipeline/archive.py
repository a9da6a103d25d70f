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
from goqueue.cli.options import Failure, OutputOption
from goqueue.cli.output import Output

_MERGE_AT = 8


def archive(
    topics: Annotated[list[str], typer.Argument(help="The topics.", show_default=False)],
    lake: Annotated[
        str, typer.Option("--lake", help="The lake's folder or object store.", show_default=False)
    ],
    format: Annotated[
        str, typer.Option("--format", help="parquet, or what your Spark has: delta, iceberg ...")
    ] = "parquet",
    compression: Annotated[
        str | None, typer.Option(help="Of parquet: zstd, which is the default, snappy, lz4, gzip or none.")
    ] = None,
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Stop where records were deleted before they were archived.")
    ] = True,
    merge_at: Annotated[
        int | None,
        typer.Option(
            help=f"Merge the small files of a date when there are so many, {_MERGE_AT} by default; 0 never does. "
            "Of parquet.",
            min=0,
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    path: PathOption = None,
    option: ReadOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what is new in topics to a lake of files. Records and progress are committed together: run it again and it goes on."""
    origin = origin_of(bootstrap, path, option)
    from goqueue.pipeline.jobs import archive as job  # with Spark behind it
    from goqueue.pipeline.jobs import archive_stream

    if format == "parquet":
        request = job.ArchiveRequest(
            origin,
            topics,
            lake,
            "zstd" if compression is None else compression,
            fails_on_loss=fail_on_data_loss,
            merge_at=_MERGE_AT if merge_at is None else merge_at,
        )
        with spark_session("archive", master, remote, conf) as spark:
            report = job.run(spark, request)
    else:
        if compression is not None or merge_at is not None:
            raise Failure(f"--compression and --merge-at are for parquet; set those of {format} with --conf")
        other = archive_stream.StreamRequest(origin, topics, lake, format, fails_on_loss=fail_on_data_loss)
        with spark_session("archive", master, remote, conf) as spark:
            report = archive_stream.run(spark, other)
    show_report(report, output)
