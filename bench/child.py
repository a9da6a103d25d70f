"""Processes of a run: started, spoken to line by line, and ended by their own handles only."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.line import BenchFailed

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_READ_BYTES = 64 * 1024


_PYTHON = (sys.executable, "-m")
_ALL_THREADS = 2  # CPUCLOCK_SCHED: the scheduler's own count, in nanoseconds


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, with the threads that it no longer has. The clock's number is what
    clock_getcpuclockid(3) gives; /proc/PID/stat would say the same in steps of 10 ms."""
    return time.clock_gettime(~pid << 3 | _ALL_THREADS)


def cpu_s_of(pids: Iterable[int]) -> float:
    """Of several processes, such as the nodes of a cluster."""
    return sum(cpu_s(pid) for pid in pids)


class Child:
    """`python -m MODULE …`; what it writes to stdout is read by `line`, what it writes to stderr is kept for errors.
    Another `program` may run the module: a Java class, say."""

    def __init__(self, module: str, *args: str, program: Sequence[str] = _PYTHON) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
        self._name = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at exit
        self._pending = b""
        self.started_at = time.perf_counter()
        self._process = subprocess.Popen(
            [*program, module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=kept,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._errors.close()

    def line(self, *, timeout_s: float = START_TIMEOUT_S) -> bytes:
        """The next line it writes."""
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BenchFailed(f"{self._name} said nothing for {timeout_s:g} s{self._trouble()}")
                data = os.read(stdout.fileno(), _READ_BYTES)
                if not data:
                    raise BenchFailed(f"{self._name} ended{self._trouble()}")
                self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def tell(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(line + b"\n")
        stdin.flush()

    def stop(self) -> None:
        """A clean end; anything else fails the run."""
        self._process.send_signal(signal.SIGTERM)
        self.wait(timeout_s=STOP_TIMEOUT_S)
        self._close()

    def end(self) -> None:
        """A clean end, whatever code it gives: a JVM that is asked to end says 143."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BenchFailed(
                f"{self._name} did not end within {STOP_TIMEOUT_S:g} s{self._trouble()}"
            ) from None
        self._close()

    def kill(self) -> None:
        """As kill -9. No error if it has ended already."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._close()

    def wait(self, *, timeout_s: float) -> None:
        """Until it ends by itself, with success."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"{self._name} did not end within {timeout_s:g} s{self._trouble()}") from None
        if code != 0:
            raise BenchFailed(f"{self._name} ended with code {code}{self._trouble()}")

    def require_running(self) -> None:
        if self._process.poll() is not None:
            raise BenchFailed(f"{self._name} ended{self._trouble()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        if match is None:
            raise BenchFailed(f"{self._name} has no resident size")
        return int(match[1]) * 1024

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _trouble(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f":\n{text}" if text else ""


class Server(Child):
    """A child that listens on loopback and says so: `ready NAME=HOST:PORT`, once for each listener."""

    def __init__(self, module: str, *args: str) -> None:
        super().__init__(module, *args)
        try:
            ready = self.line().decode()
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.perf_counter() - self.started_at
        self.ports = listening_ports(ready)
        self.port = next(iter(self.ports.values()))  # of a broker: HTTP


class Broker(Server):
    def __init__(self, folder: Path, *more: str) -> None:
        super().__init__(
            "goqueue.cli.main",
            "serve",
            "--data-dir",
            str(folder),
            "--http",
            "127.0.0.1:0",
            "--kafka",
            "127.0.0.1:0",
            "--log-level",
            "warning",
            *more,
        )


def listening_ports(ready: str) -> dict[str, int]:
    """Of a ready line, in its order."""
    listeners = (word.partition("=") for word in ready.split()[1:])
    return {name: int(address.rpartition(":")[2]) for name, _, address in listeners}
