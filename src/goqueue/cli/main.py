"""The `goqueue` command. Each family of commands is a module of `goqueue.cli.commands`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from goqueue.cli.commands import check, cluster, config, consume, pipeline, produce, serve, topic, version
from goqueue.cli.options import URL_DEFAULT, Failure
from goqueue.cli.output import Output, print_error
from goqueue.client.rest import ApiError, Unreachable
from goqueue.model.errors import GoQueueError
from goqueue.pipeline.errors import PipelineError

# Plain help and plain errors: one sentence that fits a log, and no 100 ms to load a renderer.
app = typer.Typer(
    name="goqueue",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="One broker that is a log and a queue.",
)
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("check")(check.check)
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")
app.command("version")(version.version)


@app.callback()
def common(
    url: Annotated[
        str, typer.Option("--url", envvar="GOQUEUE_URL", help="The broker's address.")
    ] = URL_DEFAULT,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """The values are read by the commands' own options of the same names."""


def run() -> None:
    """Errors of the broker, of the user and of the machine end as one sentence on stderr; anything else is a
    bug and shows its traceback."""
    try:
        app(prog_name="goqueue")
    except (ApiError, Unreachable, Failure, GoQueueError, PipelineError, OSError) as error:
        print_error(str(error))
        sys.exit(1)


if __name__ == "__main__":
    run()
