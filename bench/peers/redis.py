"""Redis Streams: one node with an append-only file, synced before every answer or once a second."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import Child
from bench.peers.debian import library_path, run, unpack
from bench.queue_peer import QueueServer, await_port, free_ports, guarded
from bench.queue_plans import Dialect

_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")


@dataclass(frozen=True, slots=True)
class RedisStreams:
    name: str
    sync: str  # of `appendfsync`

    @contextmanager
    def start(self, folder: Path) -> Iterator[QueueServer]:
        root = unpack(_PACKAGES)
        program = str(root / "usr" / "bin" / "redis-server")
        libraries = library_path(root)
        version = run([program, "--version"], cwd=folder, env={"LD_LIBRARY_PATH": libraries})
        found = re.search(r"v=(\S+)", version)
        (port,) = free_ports(1)
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(folder),
            "logfile": str(folder / "log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.sync,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with Child(program, *words, program=guarded("env", f"LD_LIBRARY_PATH={libraries}")) as child:
            await_port(child, port, "Redis")
            yield QueueServer(
                f"Redis {found[1] if found else ''} Streams, appendfsync {self.sync}",
                f"appendonly yes, appendfsync {self.sync}",
                Dialect.REDIS,
                port,
                child,
            )
