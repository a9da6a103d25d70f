"""`goqueue pipeline run`: pipelines from files, until they end or are asked to."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.commands.pipeline.common import ConfOption, MasterOption, RemoteOption, check_installed
from goqueue.cli.options import parse_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from goqueue.pipeline.declarative.spec import Definition
    from goqueue.pipeline.listening import Metrics

FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Pipelines, .yaml or .sql.", show_default=False)
]
FileArgument = Annotated[Path, typer.Argument(help="A pipeline, .yaml or .sql.", show_default=False)]
BootstrapOverride = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", help="A broker's Kafka address instead of the file's.", envvar="GOQUEUE_BOOTSTRAP"
    ),
]
_HANDLED = (signal.SIGINT, signal.SIGTERM)


def run(
    files: FilesArgument,
    bootstrap: BootstrapOverride = None,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Read what is there now, then end, whatever the triggers say."),
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=65_535, help="Serve Prometheus metrics there.")
    ] = None,
    metrics_host: Annotated[str, typer.Option("--metrics-host", help="Where to serve them.")] = "127.0.0.1",
    grace: Annotated[
        float,
        typer.Option("--grace", min=0, max=3_600, help="Seconds that a batch gets to end in on a stop."),
    ] = 10.0,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
) -> None:
    """Run pipelines. Ctrl-C stops them cleanly; the next run goes on from there."""
    check_installed()
    from goqueue.cli.commands.pipeline.showing import Screen
    from goqueue.pipeline.declarative.pipeline_run import RunOptions
    from goqueue.pipeline.declarative.running import run_pipelines

    definitions = definitions_of(files, bootstrap)
    with (
        stopped_by_signals() as stop,
        session_for(definitions, master, remote, conf) as spark,
        metrics_server(metrics_host, metrics_port) as (metrics, address),
        Screen(sys.stderr) as screen,
    ):
        signals_to(stop)  # Spark has set its own for Ctrl-C meanwhile
        if address is not None:
            screen.line(f"metrics at http://{address}/metrics")
        options = RunOptions(
            is_available_now=available_now,
            grace_s=grace,
            metrics=metrics,
            metrics_address=address,
            on_change=screen.changed,
        )
        run_pipelines(spark, definitions, options, stop)


def definitions_of(files: list[Path], bootstrap: str | None) -> list[Definition]:
    """The files, read and checked as far as that goes without Spark."""
    from goqueue.pipeline.declarative.loading import load_all, with_bootstrap

    return [with_bootstrap(definition, bootstrap) for definition in load_all(files)]


@contextmanager
def session_for(
    definitions: list[Definition],
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    *,
    is_short: bool = False,
) -> Iterator[SparkSession]:
    """A session with the settings of all files; those of the command line come first."""
    from goqueue.pipeline.declarative.running import session_settings
    from goqueue.pipeline.session.session import SessionOptions, start_session

    settings = session_settings(definitions) | parse_pairs(conf or [], "setting of Spark")
    names = ", ".join(definition.spec.name for definition in definitions)
    session = start_session(SessionOptions(f"goqueue {names}", master, remote, settings, is_short))
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def metrics_server(host: str, port: int | None) -> Iterator[tuple[Metrics | None, str | None]]:
    """Port 0 takes a free one. Nothing is served, nor counted, without a port."""
    if port is None:
        yield None, None
        return
    from prometheus_client import CollectorRegistry, start_http_server

    from goqueue.pipeline.listening import Metrics

    registry = CollectorRegistry()
    server, thread = start_http_server(port, addr=host, registry=registry)
    try:
        yield Metrics(registry), f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C ends at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in _HANDLED}
    signals_to(stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def signals_to(stop: threading.Event) -> None:
    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in _HANDLED:
        signal.signal(number, asked)
