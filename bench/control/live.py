"""`python -m bench.control.live`: two figures of docs/scale.md that need a real broker: a heartbeat of another node as it comes over HTTP, and a
Kafka client that is connected and silent. The broker is started for that on loopback, and stopped."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from pathlib import Path
from random import Random

from bench.child import Broker
from bench.line import BenchFailed, require
from bench.workspace import fresh_folder, workspace
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.core.cluster.nodes import Endpoints
from goqueue.node.clock import SystemClock
from goqueue.node.cluster.ports import Beat, Join
from goqueue.node.cluster.secret import Secret
from goqueue.node.ids import RandomIds
from goqueue.peer.dialling import Credentials
from goqueue.peer.links import PeerLinks

_BEAT_COUNT = 5_000
_WARM_COUNT = 500
_CLIENT_COUNTS = (1_000, 4_000)
_SETTLE_S = 2.0
_CONTROLLER, _NODE, _INCARNATION = "node-1", "node-2", "its first life"
_API_VERSIONS = struct.pack(">ihhih4s", 14, 18, 0, 1, 4, b"idle")
_FRAME = struct.Struct(">i")


def main() -> int:
    try:
        with workspace() as folder:
            with fresh_folder(folder) as place:
                spent_s = _measure_beat(place)
            print(f"a heartbeat over HTTP: {spent_s * 1e6:.0f} us of the controller's processor time")
            with fresh_folder(folder) as place:
                for count, size in _measure_clients(place):
                    print(f"an idle Kafka client of {count:,}: {size / 1e3:.1f} KB resident")
    except BenchFailed as error:
        print(f"bench failed: {error}", file=sys.stderr)
        return 1
    return 0


def _measure_beat(folder: Path) -> float:
    port = _free_port()
    address = f"127.0.0.1:{port}"
    peers = f"{_CONTROLLER}@{address}"
    with Broker(folder, "--node-id", _CONTROLLER, "--cluster", address, "--peers", peers) as broker:
        spent_s = asyncio.run(_beat(broker, port))
        broker.stop()
    return spent_s


def _measure_clients(folder: Path) -> list[tuple[int, float]]:
    with Broker(folder) as broker:
        found = _idle_clients(broker)
        broker.stop()
    return found


async def _beat(broker: Broker, port: int) -> float:
    """Processor time of the broker for one, which it is the controller to; what it does anyway meanwhile is in it."""
    credentials = Credentials(_NODE, lambda: None, lambda: None, Secret(b""), SystemClock(), RandomIds())
    links = PeerLinks(
        credentials, number=lambda: -1, address_of=lambda _: ("127.0.0.1", port), chance=Random(1).random
    )
    nowhere = Endpoints("127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1")
    await links.join(_CONTROLLER, Join(_NODE, _INCARNATION, nowhere, level=LEVEL_NEWEST))
    beat = Beat(_NODE, _INCARNATION, 0, is_ready=False, level=LEVEL_NEWEST)
    before = 0.0
    for serial in range(_WARM_COUNT + _BEAT_COUNT):
        if serial == _WARM_COUNT:
            before = broker.cpu_s()
        require((await links.beat(_CONTROLLER, beat)).is_known, "the controller does not know the node")
    spent_s = broker.cpu_s() - before
    await links.close()
    return spent_s / _BEAT_COUNT


def _idle_clients(broker: Broker) -> list[tuple[int, float]]:
    """How many there are, and what each has made the broker grow by. Each has asked what the broker can do, as clients do first."""
    clients: list[socket.socket] = []
    found: list[tuple[int, float]] = []
    try:
        time.sleep(_SETTLE_S)
        before = broker.resident_bytes()
        for count in _CLIENT_COUNTS:
            clients += [_client(broker.ports["kafka"]) for _ in range(count - len(clients))]
            time.sleep(_SETTLE_S)
            found.append((count, (broker.resident_bytes() - before) / count))
    finally:
        for client in clients:
            client.close()
    return found


def _client(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(_API_VERSIONS)
    left = _FRAME.unpack(_receive(client, _FRAME.size))[0]
    _receive(client, left)
    return client


def _receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        require(bool(part), "the broker has closed the connection of an idle client")
        data += part
    return data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
