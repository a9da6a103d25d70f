"""A cluster on this machine: which nodes there are, where each listens, and how its process is started."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from goqueue.cli.addresses import Address, parse_address
from goqueue.cli.config import Config
from goqueue.cli.options import Failure
from goqueue.cli.peer_list import format_peers
from goqueue.node.config import Peer
from goqueue.node.folder import LOGS

NODE_COUNT_MAX = 9
SECRET_FILE = "cluster-secret"
SECRET_VARIABLE = "GOQUEUE_CLUSTER__SECRET_FILE"
_NODE = re.compile(r"node-([1-9])")
_SECRET_BYTES = 32
# Below what the kernel gives to whoever connects, so that a node which restarts finds its own ports still free.
_FREE_PORTS = range(10_000, 32_768)
_FREE_PORT_TRIES = 1_000


class LocalNode(NamedTuple):
    name: str
    http: Address
    kafka: Address
    cluster: Address

    def addresses(self) -> tuple[Address, ...]:
        return (self.http, self.kafka, self.cluster)


def plan_nodes(config: Config, count: int) -> list[LocalNode]:
    """Raises Failure where the configuration is not one for several nodes on one machine."""
    _check_alone(config)
    listeners = [parse_address(text) for text in (config.http, config.kafka, config.cluster_listen)]
    for address in listeners:
        if not address.is_loopback:
            raise Failure(f"--nodes makes a cluster on this machine; {address} is not a loopback address")
    taken: set[int] = set()
    http, kafka, cluster = ([_nth(address, at, taken) for at in range(count)] for address in listeners)
    nodes = [LocalNode(f"node-{at + 1}", http[at], kafka[at], cluster[at]) for at in range(count)]
    ports = [address.port for node in nodes for address in node.addresses()]
    for port in ports:
        if ports.count(port) > 1:
            raise Failure(
                f"port {port} would be taken twice: {count} nodes need {count} ports each from "
                f"{', '.join(map(str, listeners))} upwards; leave more room between them"
            )
    return nodes


def check_folder(data_dir: str, count: int) -> None:
    """The nodes of a folder are those that it was made with: another number would be another majority."""
    root = Path(data_dir)
    if (root / LOGS).exists():
        raise Failure(f"{data_dir} holds the data of a node alone; give a cluster another --data-dir")
    _refuse_others(root, count)


def refuse_nodes(data_dir: str) -> None:
    """For a broker of its own in the folder: it would begin empty beside what is there, unless it has run there before."""
    root = Path(data_dir)
    if not (root / LOGS).exists():
        _refuse_others(root, 0)


def _refuse_others(root: Path, count: int) -> None:
    held = sum(_NODE.fullmatch(path.name) is not None for path in root.glob("node-*"))
    if held and held != count:
        raise Failure(f"{root} holds a cluster of {held} nodes; give --nodes {held}, or another --data-dir")


def keep_secret(data_dir: str) -> str:
    """The file with the secret that the nodes of this folder share; it is made once."""
    path = os.path.join(data_dir, SECRET_FILE)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(_SECRET_BYTES) + "\n")
    return path


def command_of(node: LocalNode, nodes: list[LocalNode], *, config: Config, file: str | None) -> list[str]:
    """Whatever else is configured the process reads from where this one did."""
    peers = [Peer(one.name, one.cluster.host, one.cluster.port) for one in nodes]
    options: Mapping[str, str | None] = {
        "--data-dir": os.path.join(config.data_dir, node.name),
        "--node-id": node.name,
        "--http": str(node.http),
        "--kafka": str(node.kafka),
        "--cluster": str(node.cluster),
        "--peers": format_peers(peers),
        "--profile": config.profile,
        "--log-level": config.log_level,
        "--config": file,
    }
    given = [text for name, value in options.items() if value is not None for text in (name, value)]
    return [sys.executable, "-m", "goqueue.cli.main", "serve", *given, "--until-input-ends"]


def _check_alone(config: Config) -> None:
    said = {
        "cluster.peers": config.node.cluster.peers,
        "http_advertised": config.http_advertised,
        "kafka_advertised": config.kafka_advertised,
        "cluster.advertised": config.cluster_advertised,
    }
    for name, value in said.items():
        if value:
            raise Failure(
                f"{name} is set; with --nodes the nodes of the cluster and their addresses are made up"
            )


def _nth(first: Address, at: int, taken: set[int]) -> Address:
    port = first.port + at if first.port else _free_port(first.host, taken)
    if port > 65_535:
        raise Failure(f"there is no port {port}, which node-{at + 1} would get, counted from {first}")
    return Address(first.host, port)


def _free_port(host: str, taken: set[int]) -> int:
    chance = SystemRandom()
    for _ in range(_FREE_PORT_TRIES):
        port = chance.choice(_FREE_PORTS)
        if port not in taken and _is_free(host, port):
            taken.add(port)
            return port
    raise Failure(f"no free port was found on {host}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
