"""NATS JetStream: one node with file storage, synced before every answer or, as it is by default, every two minutes.

Debian's server is older than `sync_interval: always`. So the pinned one is built by Go where there is Go, and
Debian's stands in for the default setting where there is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import Child
from bench.peers.debian import run, unpack
from bench.peers.maven import cache_folder
from bench.peers.peer import PeerAbsent
from bench.queue_peer import QueueServer, await_port, free_ports, guarded
from bench.queue_plans import Dialect

_VERSION = "v2.15.2"
_MODULE = f"github.com/nats-io/nats-server/v2@{_VERSION}"
_BUILD_TIMEOUT_S = 900.0
_CONFIG = """\
listen: "127.0.0.1:{port}"
jetstream {{
  store_dir: "{folder}/data"
  {sync}
}}
"""


@dataclass(frozen=True, slots=True)
class JetStream:
    name: str
    is_synced: bool

    @contextmanager
    def start(self, folder: Path) -> Iterator[QueueServer]:
        program = _program(is_synced=self.is_synced)
        version = run([program, "--version"], cwd=folder).split()[-1]
        (port,) = free_ports(1)
        config = folder / "nats.conf"
        sync = "sync_interval: always" if self.is_synced else ""
        config.write_text(_CONFIG.format(port=port, folder=folder, sync=sync), encoding="utf-8")
        command = guarded(program)
        with Child("--config", str(config), program=command) as child:
            await_port(child, port, "NATS")
            setting = "sync_interval always" if self.is_synced else "sync_interval 2m, its default"
            yield QueueServer(
                f"NATS {version} JetStream, {setting}",
                f"file storage, {setting}",
                Dialect.JETSTREAM,
                port,
                child,
            )


def _program(*, is_synced: bool) -> str:
    folder = cache_folder() / "nats" / _VERSION
    program = folder / "nats-server"
    if program.is_file():
        return str(program)
    go = shutil.which("go")
    if go is not None:
        folder.mkdir(parents=True, exist_ok=True)
        run([go, "install", _MODULE], cwd=folder, env={"GOBIN": str(folder)}, timeout_s=_BUILD_TIMEOUT_S)
        return str(program)
    if is_synced:
        raise PeerAbsent(
            "Debian's nats-server has no `sync_interval: always`, and there is no Go to build a newer one"
        )
    return str(unpack(("nats-server",)) / "usr" / "sbin" / "nats-server")
