"""A broker for the demo alone: a process of its own, on free ports, with its data in a folder that goes with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.failure import DemoFailed

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
_LOOK_S: Final = 0.05
_READY: Final = re.compile(r"ready http=(\S+) kafka=(\S+)")
_TAIL_LINES: Final = 10


@dataclass(frozen=True, slots=True)
class Addresses:
    http: str
    kafka: str

    @property
    def url(self) -> str:
        return f"http://{self.http}"


@contextmanager
def running_broker(folder: Path) -> Iterator[Addresses]:
    """Ready when the block begins, gone when it has ended."""
    log = folder / "broker.log"
    listeners = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    command = (
        sys.executable,
        "-m",
        "goqueue.cli.main",
        "serve",
        "--data-dir",
        str(folder / "data"),
        *listeners,
    )
    settings = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
    with log.open("wb") as stream:
        # Its own group: Ctrl-C is for the demo, which stops the broker when nobody needs it any more.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=settings,
            start_new_session=True,
        )
    try:
        yield _when_ready(process, log)
    finally:
        _stop(process)


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> Addresses:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        found = _READY.search(log.read_text(errors="replace"))
        if found is not None:
            return Addresses(*found.groups())
        time.sleep(_LOOK_S)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    raise DemoFailed(f"the broker did not start within {START_S_MAX:.0f} s; its last lines:\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
