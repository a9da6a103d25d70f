"""A cluster of real processes on this machine, with timings so short that a test can wait for a node to be given up.

Ports stay a node's own over its restarts, and so does its folder. The end of the `with` block ends these processes and no
others.

As a program this is one of the nodes: its place in the cluster is the argument.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct, structs
from tests.support.broker import START_TIMEOUT_S, Lines, clean_environment
from tests.support.ports import port_of_ours

from goqueue.cli.config import Config
from goqueue.cli.logs import start_logging
from goqueue.cli.serve import run_until_signal
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.model.settings import TopicSettings
from goqueue.node.config import ClusterConfig, NodeConfig, Peer

ROOT = Path(__file__).parents[2]
SECRET = "what all nodes of a test know"


class Seat(Struct, frozen=True):
    """One node's place, with its ports."""

    number: int
    data_dir: str
    http: int
    kafka: int
    cluster: Sequence[int]  # of the configured peers, by number
    listen: int = 0  # for other nodes, where it is none of these
    level: int = LEVEL_NEWEST  # of features, that it says it understands
    patience: int = 1  # with which nodes that are silent are waited for
    has_rack: bool = False  # of its name, and clients that are there read from it
    certificates: str = (
        ""  # the folder of an authority that vouches for the nodes; without, they talk without TLS
    )


def config_of(seat: Seat) -> Config:
    name = f"node-{seat.number}"
    peers = tuple(
        Peer(f"node-{number}", "127.0.0.1", port) for number, port in enumerate(seat.cluster, start=1)
    )
    fast = ClusterConfig(
        peers=peers,
        rack=name if seat.has_rack else "",
        follower_reads=seat.has_rack,
        heartbeat_ms=200 * seat.patience,
        suspect_ms=500 * seat.patience,
        dead_ms=1_000 * seat.patience,
        lease_ms=1_500 * seat.patience,
        lease_renew_ms=300 * seat.patience,
        replica_lag_ms_max=2_000 * seat.patience,
        balance_ms=5_000,
        feature_level_max=seat.level,
    )
    folder = seat.certificates
    return Config(
        data_dir=seat.data_dir,
        http=f"127.0.0.1:{seat.http}",
        kafka=f"127.0.0.1:{seat.kafka}",
        cluster_listen=f"127.0.0.1:{seat.listen or seat.cluster[seat.number - 1]}",
        cluster_secret=SECRET,
        cluster_tls_certificate=f"{folder}/{name}.pem" if folder else "",
        cluster_tls_key=f"{folder}/{name}.key" if folder else "",
        cluster_tls_authority=f"{folder}/ca.pem" if folder else "",
        node=NodeConfig(
            node_id=name,
            cluster=fast,
            topic_defaults=TopicSettings(min_insync_replicas=2),
        ),
    )


class ClusterNode:
    """A process; it may not be ready yet."""

    def __init__(self, seat: Seat) -> None:
        self.kafka = f"127.0.0.1:{seat.kafka}"
        self.url = f"http://127.0.0.1:{seat.http}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.local_cluster", msgspec.json.encode(seat).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout = Lines(self._process.stdout, f"stdout of node-{seat.number}")
        self.stderr = Lines(self._process.stderr, f"stderr of node-{seat.number}")

    def until_ready(self) -> None:
        try:
            self._stdout.wait_for("ready", timeout_s=START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"a node did not start: {error}\n{self.stderr.text()}") from None

    def kill9(self) -> None:
        """No error if it has ended already."""
        self._process.kill()
        self._process.wait()
        self._stdout.join()
        self.stderr.join()

    def stop(self) -> int:
        """Ask it to end and wait until it has; the exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Until it has come to its end; the exit code."""
        return self._process.wait(START_TIMEOUT_S)


class LocalCluster:
    """Nodes 1 to `size`. The constructor returns when all are ready. A test whose clients ask each thing once has more `patience`, so that
    nobody is taken for dead only because the machine is busy."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        level: int = LEVEL_NEWEST,
        patience: int = 2,
        has_racks: bool = False,
        certificates: Path | None = None,
    ) -> None:
        cluster = [port_of_ours() for _ in range(size)]
        self._folder = folder
        self._seats = {
            number: Seat(
                number,
                str(folder / f"node-{number}"),
                port_of_ours(),
                port_of_ours(),
                cluster,
                level=level,
                patience=patience,
                has_rack=has_racks,
                certificates="" if certificates is None else str(certificates),
            )
            for number in range(1, size + 1)
        }
        self.nodes: dict[int, ClusterNode] = {}
        try:
            self.nodes.update({number: ClusterNode(seat) for number, seat in self._seats.items()})
            for node in self.nodes.values():
                node.until_ready()
        except BaseException:
            self.end()
            raise

    @property
    def bootstrap(self) -> str:
        """For Kafka clients: all nodes, also those that are down."""
        return ",".join(f"127.0.0.1:{seat.kafka}" for seat in self._seats.values())

    @property
    def ports(self) -> Sequence[int]:
        """Where the configured nodes listen for each other."""
        return self._seats[1].cluster

    def kill9(self, number: int) -> None:
        self.nodes[number].kill9()

    def restart(self, number: int) -> None:
        """After its end; back when it is ready."""
        self.begin_restart(number)
        self.nodes[number].until_ready()

    def begin_restart(self, number: int) -> None:
        self.nodes[number] = ClusterNode(self._seats[number])

    def upgrade(self, number: int) -> None:
        """One that was started at an older level: stop it, and start it at the newest."""
        assert self.nodes[number].stop() == 0
        self._seats[number] = structs.replace(self._seats[number], level=LEVEL_NEWEST)
        self.restart(number)

    def add(self, number: int, *, level: int = LEVEL_NEWEST) -> ClusterNode:
        """A node that nobody has configured; it may not be ready yet."""
        peers = self._seats[1].cluster
        self._seats[number] = Seat(
            number,
            str(self._folder / f"node-{number}"),
            port_of_ours(),
            port_of_ours(),
            peers,
            listen=port_of_ours(),
            level=level,
            patience=self._seats[1].patience,
            certificates=self._seats[1].certificates,
        )
        self.nodes[number] = ClusterNode(self._seats[number])
        return self.nodes[number]

    def start_namesake(self, number: int) -> ClusterNode:
        """A second process that says it is this node, on an empty disk elsewhere. The caller ends it."""
        return self.start_elsewhere(number, self._folder / f"namesake-{number}")

    def start_elsewhere(self, number: int, folder: Path) -> ClusterNode:
        """Under the name of this node, with another folder and other ports. The caller ends it."""
        seat = structs.replace(
            self._seats[number],
            data_dir=str(folder),
            http=port_of_ours(),
            kafka=port_of_ours(),
            listen=port_of_ours(),
        )
        return ClusterNode(seat)

    def forget(self, number: int) -> None:
        """Its machine is lost for good, with its disk."""
        self.kill9(number)
        shutil.rmtree(self._folder / f"node-{number}")

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill9()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def _main() -> None:
    seat = msgspec.json.decode(sys.argv[1], type=Seat)
    start_logging("info")
    run_until_signal(config_of(seat), on_ready=lambda listening: print("ready", listening, flush=True))


if __name__ == "__main__":
    _main()
