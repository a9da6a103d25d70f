"""`goqueue serve`: a broker in the foreground."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from goqueue.cli.allocator import keep_freed_memory
from goqueue.cli.commands.config import ConfigOption, load_or_exit
from goqueue.cli.config import Config
from goqueue.cli.listening import Listening
from goqueue.cli.logs import start_logging
from goqueue.cli.options import Failure

_HINTS = """\
try: curl {url}/topics -d '{{"name": "demo"}}'
try: curl {url}/topics/demo/messages -d '{{"messages": [{{"value": "hello", "partition": 0}}]}}'
try: curl '{url}/topics/demo/partitions/0/messages?offset=0'
try: any Kafka client with bootstrap.servers={kafka}"""


def serve(
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder that holds all data.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the REST API listens.")] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")
    ] = None,
    node_id: Annotated[str | None, typer.Option(metavar="NAME", help="This node's name.")] = None,
    config: ConfigOption = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    hints: Annotated[bool, typer.Option("--hints", help="Print commands to try.")] = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Prints one line when it is ready."""
    flags = {
        "data_dir": data_dir,
        "http": http,
        "kafka": kafka,
        "node_id": node_id,
        "log_level": log_level,
    }
    loaded = load_or_exit(config, flags).config
    start_logging(loaded.log_level)
    keep_freed_memory()
    _run(loaded, hints=hints or sys.stderr.isatty())


def _run(config: Config, *, hints: bool) -> None:
    from goqueue.cli.serve import BrokerFailed, run_until_signal  # the whole broker: not for `goqueue --help`

    def on_ready(listening: Listening) -> None:
        for address in listening:
            if not address.is_loopback:
                print(
                    f"warning: {address} is not a loopback address and there is no authentication: whoever reaches it "
                    "can read, write and delete everything",
                    file=sys.stderr,
                )
        if hints:
            print(_HINTS.format(url=f"http://{listening.http}", kafka=listening.kafka), file=sys.stderr)
        print(f"ready http={listening.http} kafka={listening.kafka}", flush=True)

    try:
        run_until_signal(config, on_ready=on_ready)
    except BrokerFailed as error:
        raise Failure(str(error)) from error
