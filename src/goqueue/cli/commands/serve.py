"""`goqueue serve`: a broker in the foreground, or a whole cluster of them on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import typer
from msgspec import structs

from goqueue.cli.allocator import keep_freed_memory
from goqueue.cli.commands.config import ConfigOption, load_or_exit
from goqueue.cli.config import Config, Loaded
from goqueue.cli.listening import Listening
from goqueue.cli.local_plan import (
    NODE_COUNT_MAX,
    SECRET_VARIABLE,
    LocalNode,
    check_folder,
    command_of,
    keep_secret,
    plan_nodes,
    refuse_nodes,
)
from goqueue.cli.logs import start_logging
from goqueue.cli.options import Failure
from goqueue.node.folder import DataFolder

_HINTS = """\
try: curl {url}/topics -d '{{"name": "demo"}}'
try: curl {url}/topics/demo/messages -d '{{"messages": [{{"value": "hello", "partition": 0}}]}}'
try: curl '{url}/topics/demo/partitions/0/messages?offset=0'
try: any Kafka client with bootstrap.servers={kafka}"""
_LOCAL_PROFILE = "fast"  # of a cluster on one machine, unless it is told otherwise


def serve(
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder that holds all data.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the REST API listens.")] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where Kafka clients connect.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where other nodes of the cluster connect.")
    ] = None,
    node_id: Annotated[str | None, typer.Option(metavar="NAME", help="This node's name.")] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="NAME@HOST:PORT,...", help="All nodes of the cluster, this one too."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The timings of a cluster: default or fast.", show_default=False)
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=NODE_COUNT_MAX,
            help="Start a cluster of so many nodes here, --profile fast by default; ports count up.",
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="With --nodes: start a node that died again.")
    ] = True,
    config: ConfigOption = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    hints: Annotated[bool, typer.Option("--hints", help="Print commands to try.")] = False,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Prints one line when it is ready."""
    flags = {
        "data_dir": data_dir,
        "http": http,
        "kafka": kafka,
        "cluster.listen": cluster,
        "node_id": node_id,
        "cluster.peers": peers,
        "profile": profile,
        "log_level": log_level,
    }
    if nodes is not None and (node_id is not None or peers is not None):
        raise typer.BadParameter(
            "with --nodes the names of the nodes are made up; leave out --node-id and --peers"
        )
    loaded = load_or_exit(config, flags)
    start_logging(loaded.config.log_level)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    hints = hints or sys.stderr.isatty()
    if nodes is not None:
        _run_nodes(loaded, nodes, _Watch(restart, hints, until_input_ends), file=config)
        return
    keep_freed_memory()
    _run(loaded.config, hints=hints, until_input_ends=until_input_ends)


def _run(config: Config, *, hints: bool, until_input_ends: bool) -> None:
    from goqueue.cli.serve import BrokerFailed, run_until_signal  # the whole broker: not for `goqueue --help`

    refuse_nodes(config.data_dir)

    def on_ready(listening: Listening) -> None:
        for address in (listening.http, listening.kafka):  # nodes authenticate each other
            if not address.is_loopback:
                print(
                    f"warning: {address} is not a loopback address and there is no authentication: whoever reaches it "
                    "can read, write and delete everything",
                    file=sys.stderr,
                )
        if hints:
            print(_HINTS.format(url=f"http://{listening.http}", kafka=listening.kafka), file=sys.stderr)
        print(f"ready {listening}", flush=True)

    try:
        run_until_signal(config, on_ready=on_ready, until_input_ends=until_input_ends)
    except BrokerFailed as error:
        raise Failure(str(error)) from error


class _Watch(NamedTuple):
    """How the process that starts the nodes of a cluster behaves."""

    restarts: bool
    hints: bool
    until_input_ends: bool


def _run_nodes(loaded: Loaded, count: int, watch: _Watch, *, file: str | None) -> None:
    config = loaded.config
    is_profile_chosen = any(one.key == "profile" and one.source != "default" for one in loaded.settings)
    if not is_profile_chosen:
        config = structs.replace(config, profile=_LOCAL_PROFILE)
    nodes = plan_nodes(config, count)
    check_folder(config.data_dir, count)
    folder = DataFolder.lock(config.data_dir)
    try:
        environment = dict(os.environ)
        if not config.cluster_secret:
            environment[SECRET_VARIABLE] = keep_secret(config.data_dir)
        _watch_nodes(config, nodes, environment, watch, file=file)
    finally:
        folder.release()


def _watch_nodes(
    config: Config,
    nodes: list[LocalNode],
    environment: Mapping[str, str],
    watch: _Watch,
    *,
    file: str | None,
) -> None:
    from goqueue.cli.local_cluster import LocalCluster, NodeFailed, Started, run_local_cluster  # asyncio

    def on_ready(name: str, line: str) -> None:
        print(f"ready node={name} {line}", flush=True)

    def on_all_ready() -> None:
        if watch.hints:
            print(_HINTS.format(url=f"http://{nodes[0].http}", kafka=kafka), file=sys.stderr)
        print(f"ready nodes={len(nodes)} http={http} kafka={kafka}", flush=True)

    http = ",".join(str(node.http) for node in nodes)
    kafka = ",".join(str(node.kafka) for node in nodes)
    starts = [Started(node, command_of(node, nodes, config=config, file=file)) for node in nodes]

    def cluster_of() -> LocalCluster:
        return LocalCluster(
            starts, environment, restarts=watch.restarts, on_ready=on_ready, on_all_ready=on_all_ready
        )

    try:
        run_local_cluster(cluster_of, until_input_ends=watch.until_input_ends)
    except NodeFailed as error:
        raise Failure(str(error)) from error
