"""Nodes as processes, over all their lives: started as a user starts them, and ended in every way there is."""

from __future__ import annotations

import re
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.links import Outlook
from tests.chaos.world import Addresses, name_of
from tests.support.broker import clean_environment, command_line

READY: Final = re.compile(rb"^ready ", re.MULTILINE)
START_S: Final = 120.0
STOP_S: Final = 60.0
_MODULES: Final = "PYTHONPATH"  # goes before what is installed
# The nodes of one run; whoever else is on the machine does not know it.
SECRET_VARIABLE: Final = "GOQUEUE_CLUSTER__SECRET"
# Who leaves while the coordinator moves is not heard (clients do not say it twice), and holds its partitions until then.
SETTINGS: Final[Mapping[str, str]] = {"GOQUEUE_GROUPS__CONSUMER_SESSION_MS": "15000"}


class NodeProcess:
    """It ends with this process, however that ends: its input is a pipe that nobody else holds."""

    def __init__(
        self,
        number: int,
        *,
        folder: Path,
        data: Path,
        addresses: Addresses,
        outlook: Outlook,
        secret: str,
        prefix: Sequence[str] = (),
        older: Path | None = None,
    ) -> None:
        """`older` is a checkout of another version, which it runs until it is upgraded."""
        self._number = number
        self._errors = folder / f"{name_of(number)}.log"
        self._command = [*prefix, *command_line("serve", *_options(number, data, addresses, outlook))]
        self._environment = clean_environment({**SETTINGS, **outlook.advertised, SECRET_VARIABLE: secret})
        if older is not None:
            self._environment[_MODULES] = str(older / "src")
        self.is_older = older is not None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the program, which then ends its nodes
            )
        self._wait_until_ready(self._process)

    def upgrade(self) -> None:
        """From the next start on."""
        self._environment.pop(_MODULES, None)
        self.is_older = False

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeFailed(f"{name_of(self._number)} did not end within {STOP_S} s of {how.name}") from None
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        deadline, said = time.monotonic() + START_S, b""
        while not READY.search(said):
            left_s = deadline - time.monotonic()
            if not select.select([process.stdout], [], [], max(0.0, left_s))[0]:
                raise NodeFailed(f"{name_of(self._number)} was not ready within {START_S} s")
            more = process.stdout.read1(4096)  # type: ignore[attr-defined]  # a BufferedReader, which the type does not tell
            if not more:
                raise NodeFailed(f"{name_of(self._number)} ended while it started: {self._last_words()}")
            said += more

    def _last_words(self) -> str:
        return "\n".join(self._errors.read_text(errors="replace").splitlines()[-5:])


class NodeProcesses:
    """All nodes of a world that starts and ends each of them by itself. `addresses` are what they listen on, `prefix` is what a node's
    command is run by, and `data` its folder."""

    def __init__(
        self,
        folder: Path,
        addresses: Addresses,
        *,
        data: Callable[[int], Path],
        outlook: Callable[[int], Outlook] | None = None,
        prefix: Callable[[int], Sequence[str]] = lambda _: (),
        older: Path | None = None,
    ) -> None:
        """Without an outlook nodes find each other where they listen."""
        secret = secrets.token_hex(16)
        self._nodes = {
            number: NodeProcess(
                number,
                folder=folder,
                data=data(number),
                addresses=addresses,
                outlook=Outlook(addresses.peers) if outlook is None else outlook(number),
                secret=secret,
                prefix=prefix(number),
                older=older,
            )
            for number in range(1, len(addresses.cluster) + 1)
        }

    def start(self, node: int) -> None:
        self._nodes[node].start()

    def upgrade(self, node: int) -> None:
        self._nodes[node].upgrade()

    def is_older(self, node: int) -> bool:
        return self._nodes[node].is_older

    def stop(self, node: int) -> None:
        self._nodes[node].stop()

    def kill(self, node: int) -> None:
        self._nodes[node].kill()

    def pause(self, node: int) -> None:
        self._nodes[node].pause()

    def resume(self, node: int) -> None:
        self._nodes[node].resume()

    def is_running(self, node: int) -> bool:
        return self._nodes[node].is_running

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()


class NodeFailed(Exception):
    """A node did not start, or did not end."""


def _options(number: int, data: Path, addresses: Addresses, outlook: Outlook) -> list[str]:
    at = number - 1
    options = {
        "--data-dir": str(data),
        "--node-id": name_of(number),
        "--peers": outlook.peers,
        "--http": addresses.http[at],
        "--kafka": addresses.kafka[at],
        "--cluster": addresses.cluster[at],
        "--profile": "fast",
    }
    return [*(part for pair in options.items() for part in pair), "--until-input-ends"]
