"""A load as the program sees it: a process where the clients are."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.load.job import END_S
from tests.chaos.world import World

_READY_S: Final = 120.0
_DONE_S: Final = END_S + 20.0
_GONE_S: Final = 30.0


class LoadFailed(Exception):
    """It ended by itself, or not at all; the sentence says which."""


class LoadProcess:
    def __init__(self, world: World, name: str, *, folder: Path, seed: int) -> None:
        self.name = name
        self.history = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.log"
        addresses = world.addresses()
        options = {
            "--kafka": addresses.bootstrap,
            "--http": ",".join(addresses.http),
            "--replicas": str(min(3, world.node_count)),
            "--seed": str(seed),
            "--history": str(self.history),
        }
        command = [sys.executable, "-m", "tests.chaos.load", name]
        with self._errors.open("ab") as errors:
            self._process: subprocess.Popen[bytes] = world.client(
                [*command, *(part for pair in options.items() for part in pair)], errors
            )

    def wait_until_ready(self) -> None:
        self._wait_for(b"ready", _READY_S)

    def stop(self) -> None:
        """Ask it to come to an end; `wait` for that."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"stop\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and `wait` says how

    def wait(self) -> None:
        """Until it is done; raises LoadFailed if that takes too long. Its clients' own ends are in the history."""
        self._wait_for(b"done", _DONE_S)
        self._process.wait(_GONE_S)
        if self._process.returncode:
            raise LoadFailed(f"the load {self.name} failed: {self._last_words()}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _wait_for(self, word: bytes, timeout_s: float) -> None:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            line = self._process.stdout.readline()
            if line.strip() == word:
                return
            if not line:
                raise LoadFailed(f"the load {self.name} ended early: {self._last_words()}")
        raise LoadFailed(f"the load {self.name} did not say {word.decode()!r} within {timeout_s} s")

    def _last_words(self) -> str:
        return self._errors.read_text(errors="replace")[-2_000:]
