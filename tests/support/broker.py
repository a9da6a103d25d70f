"""A real broker process for integration tests.

It listens on ports that stay its own over a restart and keeps its data in a folder that the test chooses, so any
number run side by side. Output is collected by threads and waited for by content: no test has to sleep. Whatever a test does, the
end of the `with` block ends this process and no other.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.ports import port_of_ours

READY = re.compile(r"ready http=(\S+) kafka=(\S+)")
START_TIMEOUT_S = 120.0  # so long only where the machine has other things to do
STOP_TIMEOUT_S = 60.0


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without its GOQUEUE_* variables: a developer's settings must not change what a test sees."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
    pure = os.environ.get("GOQUEUE_PURE_PYTHON")
    return kept | ({"GOQUEUE_PURE_PYTHON": pure} if pure else {}) | dict(extra or {})


def command_line(*args: str) -> list[str]:
    return [sys.executable, "-m", "goqueue.cli.main", *args]


class Lines:
    """What a process writes to one stream, line by line, collected by a thread so that the pipe never fills."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream = stream
        self._name = name
        self._lines: list[str] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._collect, name=name, daemon=True)
        self._thread.start()

    def wait_for(self, pattern: str | re.Pattern[str], *, timeout_s: float = 60.0) -> re.Match[str]:
        """The first match in any line, those already written included; an error if the stream ends first."""
        deadline = time.monotonic() + timeout_s
        seen_count = 0
        with self._changed:
            while True:
                for line in self._lines[seen_count:]:
                    if match := re.search(pattern, line):
                        return match
                seen_count = len(self._lines)
                left_s = deadline - time.monotonic()
                if self._is_closed or not self._changed.wait(max(0.0, left_s)) or left_s <= 0:
                    raise AssertionError(
                        f"no line matches {pattern!r} on {self._name}:\n{''.join(self._lines)}"
                    )

    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def join(self) -> str:
        """Everything, once the process has ended."""
        self._thread.join(STOP_TIMEOUT_S)
        return self.text()

    def _collect(self) -> None:
        with self._stream:
            for line in self._stream:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Process:
    """A `goqueue` command that runs while the test goes on."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            command_line(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(env),
            cwd=cwd,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout = Lines(self._process.stdout, f"stdout of {args[0]}")
        self.stderr = Lines(self._process.stderr, f"stderr of {args[0]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code, with both streams complete."""
        code = self._process.wait(timeout_s)
        self.stdout.join()
        self.stderr.join()
        return code

    def kill9(self) -> None:
        """As a power cut would end it, as far as the process is concerned. No error if it has ended already."""
        self._process.kill()
        self.wait()


class Broker(Process):
    """`goqueue serve` on free ports. The constructor returns when it is ready."""

    def __init__(
        self,
        data_dir: Path,
        *args: str,
        env: Mapping[str, str] | None = None,
        http: str | None = None,
        kafka: str | None = None,
    ) -> None:
        self.data_dir = data_dir
        http, kafka = (address or f"127.0.0.1:{port_of_ours()}" for address in (http, kafka))
        listeners = ("--http", http, "--kafka", kafka)
        super().__init__("serve", "--data-dir", str(data_dir), *listeners, *args, env=env)
        try:
            self.address, self.kafka = self.stdout.wait_for(READY, timeout_s=START_TIMEOUT_S).groups()
        except AssertionError as error:
            self.kill9()
            raise AssertionError(f"the broker did not start: {error}\n{self.stderr.text()}") from None
        self.url = f"http://{self.address}"

    def stop(self) -> int:
        """Ask it to end and wait until it has; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()
