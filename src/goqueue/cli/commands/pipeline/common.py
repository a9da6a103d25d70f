"""What the commands of the pipeline share: where topics are, where Spark runs, and how a report looks.

Spark is imported when a command runs, never before: it is large, and not everybody has installed it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.options import Failure, parse_pairs
from goqueue.cli.output import Output, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from goqueue.pipeline.jobs.report import Report
    from goqueue.pipeline.origin import Origin


def _bootstrap_in_force(context: typer.Context, given: str | None) -> str | None:
    """Whoever names a folder means it, whatever the environment says."""
    source = context.get_parameter_source("bootstrap")
    is_from_environment = source is not None and source.name == "ENVIRONMENT"
    return None if is_from_environment and context.params.get("path") is not None else given


BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        help="A broker's Kafka address, HOST:PORT; 127.0.0.1:9092 if nothing is said.",
        envvar="GOQUEUE_BOOTSTRAP",
        callback=_bootstrap_in_force,
    ),
]
PathOption = Annotated[
    str | None, typer.Option("--path", help="A data folder or backup to read instead of a broker.")
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs: local[*], spark://, yarn, k8s://.")
]
RemoteOption = Annotated[str | None, typer.Option("--remote", help="A Spark Connect server, sc://HOST:PORT.")]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE. May be repeated.")
]
ReadOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the goqueue source or sink, NAME=VALUE. May be repeated."),
]


def origin_of(bootstrap: str | None, path: str | None, options: list[str] | None = None) -> Origin:
    check_installed()
    from goqueue.pipeline.origin import Origin

    return Origin(bootstrap, path, parse_pairs(options or [], "option"))


@contextmanager
def spark_session(
    name: str, master: str | None, remote: str | None, conf: list[str] | None, *, is_short: bool = False
) -> Iterator[SparkSession]:
    """Spark while the block runs, with a bar for its stages where a person watches. What Spark fails with ends as one sentence."""
    check_installed()
    from goqueue.pipeline.session.session import SessionOptions, start_session
    from goqueue.pipeline.session.stages import stage_bar
    from goqueue.pipeline.spark_errors import SPARK_ERRORS, quiet, root_cause, told

    settings = parse_pairs(conf or [], "setting of Spark")
    options = SessionOptions(f"goqueue {name}", master, remote, settings, is_short)
    try:
        session = start_session(options)
    except SPARK_ERRORS as error:
        raise Failure(f"Spark does not start: {told(error).sentence}") from error
    try:
        with quiet(), stage_bar(session, name, is_shown=sys.stderr.isatty()):
            yield session
    except SPARK_ERRORS as error:
        raise Failure(root_cause(str(error))) from error
    finally:
        session.stop()


def show_report(report: Report, output: Output) -> None:
    """Ends with an error where the job found what it was to find."""
    value = {
        "job": report.job,
        **report.counts,
        "rows": [dict(zip(report.headings, row, strict=True)) for row in report.rows],
        "notes": report.notes,
    }
    if output is Output.TABLE:
        show(value, output, rows=[*report.counts.items(), *(("note", note) for note in report.notes)])
        if report.rows:
            print()
            show(value, output, headings=report.headings, rows=report.rows)
    else:
        show(value, output)
    if report.is_failure:
        raise Failure(f"{report.job}: {report.notes[0] if report.notes else 'failed'}")


def check_installed() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise Failure(
            f"{', '.join(missing)} is not installed; the pipeline needs: pip install 'goqueue[spark]'"
        )
