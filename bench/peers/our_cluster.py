"""Three nodes of this repository, each started as `goqueue serve --nodes 3` starts them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.child import Child
from bench.peers.clusters import NODES, Cluster, Timing, free_ports, start_all

_LISTENERS = ("http", "kafka", "cluster")
_ANSWER_TIMEOUT_S = 10.0
_CONFIG = """\
[cluster]
secret_file = "{secret}"

[groups]
consumer_heartbeat_ms = {heartbeat_ms}
"""


class OurCluster:
    name = "goqueue"
    title = "three nodes of GoQueue"

    def __init__(self, *, group_heartbeat_ms: int = 3_000) -> None:
        self._group_heartbeat_ms = group_heartbeat_ms

    @contextmanager
    def start(self, folder: Path, timing: Timing) -> Iterator[Cluster]:
        secret, config = folder / "secret", folder / "goqueue.toml"
        secret.write_text(secrets.token_hex(32), encoding="ascii")
        config.write_text(
            _CONFIG.format(secret=secret, heartbeat_ms=self._group_heartbeat_ms), encoding="utf-8"
        )
        ports = iter(free_ports(len(NODES) * len(_LISTENERS)))
        places = {node: {kind: f"127.0.0.1:{next(ports)}" for kind in _LISTENERS} for node in NODES}
        peers = ",".join(f"node-{node}@{places[node]['cluster']}" for node in NODES)

        def spawn(node: int) -> Child:
            options = {
                "--data-dir": str(folder / f"node-{node}"),
                "--node-id": f"node-{node}",
                "--peers": peers,
                "--profile": timing.value,
                "--log-level": "warning",
                "--config": str(config),
                **{f"--{kind}": address for kind, address in places[node].items()},
            }
            given = [text for option in options.items() for text in option]
            return Child("goqueue.cli.main", "serve", *given, "--until-input-ends")

        cluster = Cluster(
            {node: places[node]["kafka"] for node in NODES},
            {node: [int(one.rpartition(":")[2]) for one in places[node].values()] for node in NODES},
            {node: folder / f"node-{node}" / "logs" for node in NODES},
            spawn,
            _controller,
        )
        try:
            start_all(cluster)
            yield cluster
        finally:
            cluster.end()


def _controller(cluster: Cluster) -> int:
    found: int = cluster.admin().list_topics(timeout=_ANSWER_TIMEOUT_S).controller_id
    return found
