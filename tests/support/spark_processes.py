"""Processes that have children of their own, such as a driver with its JVM and its Python workers, ended as a whole.

Only descendants of the process that was started are ended, each by its id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.broker import Lines, clean_environment

_ROOT = Path(__file__).parents[2]
END_TIMEOUT_S = 60.0


def descendants(pid: int) -> list[int]:
    """Children first met first; those that end meanwhile may be missing."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue  # the thread has ended
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill9_all(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Tree:
    """A command with everything that it starts. Its output is collected; the end of the `with` block ends it all."""

    def __init__(
        self, command: Sequence[str], *, name: str, env: Mapping[str, str] | None = None, cwd: Path = _ROOT
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(env),
            cwd=cwd,
        )
        assert self._process.stdout is not None
        self.output = Lines(self._process.stdout, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def descendants(self) -> list[int]:
        return descendants(self.pid)

    def wait(self, *, timeout_s: float = END_TIMEOUT_S) -> int:
        return self._process.wait(timeout_s)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill9(self) -> None:
        """The process first, so that nothing of it notices the end of its children."""
        pids = [self.pid, *self.descendants()] if self.is_running else []
        kill9_all(pids)
        self._process.wait(END_TIMEOUT_S)
        kill9_all([pid for pid in pids[1:] if _is_orphan(pid)])
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass


def _is_orphan(pid: int) -> bool:
    """Still running, and not a process of another's that has been given the same id."""
    return command_of(pid) != "" and ("java" in command_of(pid) or "pyspark" in command_of(pid))


def python_command(module: str, *args: str) -> list[str]:
    return [sys.executable, "-m", module, *args]
