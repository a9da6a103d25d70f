"""The nodes of one `goqueue serve --nodes`: that process starts them, and starts again whichever dies.

All share the loopback interface, so there is nothing to cut. Which process is which node its lock file says.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from tests.chaos.loopback import LoopbackWorld
from tests.chaos.node_process import SETTINGS, START_S, STOP_S, NodeFailed
from tests.chaos.world import Addresses, NotPossible, name_of
from tests.support.broker import clean_environment, command_line

_ALL_READY: Final = re.compile(r"^ready nodes=\d+ http=(\S+) kafka=(\S+)")
_READY: Final = re.compile(r"^ready node=(\S+) ")
_ENDED: Final = re.compile(r"node has ended name=(\S+) ")
_OF_NODE: Final = re.compile(r"^(node-\d+) \| (.*)", re.DOTALL)
_ANYWHERE: Final = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--cluster", "127.0.0.1:0")
_ONE_PROGRAM: Final = "one program starts all of them; use --world loopback or namespaces"
_PAUSE_S: Final = 30.0  # the supervisor's longest, before a node that dies at once is started again


def supervised_world(folder: Path, node_count: int, older: Path | None = None) -> LoopbackWorld:
    if older is not None:
        raise NotPossible(_ONE_PROGRAM)
    nodes = SupervisedNodes(folder, node_count)
    return LoopbackWorld(nodes, node_count, nodes.addresses)


class SupervisedNodes:
    """Whoever is killed or stopped here comes back by itself: `start` only waits for that."""

    def __init__(self, folder: Path, count: int) -> None:
        self.addresses = Addresses(kafka=(), http=(), cluster=())
        self._folder = folder
        self._data = folder / "data"
        self._changed = threading.Condition()
        self._ready_count: Counter[str] = Counter()
        self._ended_count: Counter[str] = Counter()
        self._asked_count: Counter[str] = Counter()  # endings that were asked for here
        options = ["--nodes", str(count), "--data-dir", str(self._data), *_ANYWHERE, "--until-input-ends"]
        self._process = subprocess.Popen(
            command_line("serve", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(SETTINGS),
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._follow, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        try:
            self._wait_for(lambda: bool(self.addresses.http), START_S, "the nodes are not ready")
        except BaseException:
            self.close()
            raise

    def start(self, node: int) -> None:
        name = name_of(node)
        self._wait_for(lambda: self._is_up(name), _PAUSE_S + START_S, f"{name} is not back")
        with self._changed:
            self._asked_count[name] = self._ended_count[name]

    def stop(self, node: int) -> None:
        self._end(node, signal.SIGTERM)

    def kill(self, node: int) -> None:
        self._end(node, signal.SIGKILL)

    def pause(self, node: int) -> None:
        os.kill(self._pid(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.kill(self._pid(node), signal.SIGCONT)

    def upgrade(self, node: int) -> None:
        raise NotPossible(_ONE_PROGRAM)

    def is_older(self, node: int) -> bool:
        return False

    def is_running(self, node: int) -> bool:
        name = name_of(node)
        return self._is_up(name) and self._ended_count[name] == self._asked_count[name]

    def close(self) -> None:
        """All of them at once: the nodes end when the process that started them has."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(STOP_S)  # the last node has closed its end then
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _end(self, node: int, how: signal.Signals) -> None:
        name = name_of(node)
        with self._changed:
            self._asked_count[name] += 1
            asked_count = self._asked_count[name]
        os.kill(self._pid(node), how)
        self._wait_for(
            lambda: self._ended_count[name] >= asked_count,
            STOP_S,
            f"{name} has not ended after {how.name}",
        )

    def _is_up(self, name: str) -> bool:
        return self._ready_count[name] > self._ended_count[name]

    def _pid(self, node: int) -> int:
        return int((self._data / name_of(node) / "lock").read_text().split()[1])

    def _wait_for(self, fact: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: fact() or self._process.poll() is not None, timeout_s):
                raise NodeFailed(f"{otherwise} within {timeout_s} s")
            if not fact():
                raise NodeFailed(f"{otherwise}: the process that started it has ended")

    def _follow(self, stream: IO[str]) -> None:
        """What each node writes goes into a file of its own."""
        with stream:
            for line in stream:
                self._note(line)
        with self._changed:
            self._changed.notify_all()

    def _note(self, line: str) -> None:
        of_node = _OF_NODE.match(line)
        name, text = of_node.groups() if of_node else ("supervisor", line)
        with self._changed:
            with (self._folder / f"{name}.log").open("a") as file:
                file.write(text)
            if of_node:
                return
            if match := _ALL_READY.match(text):
                http, kafka = (one.split(",") for one in match.groups())
                self.addresses = Addresses(kafka=kafka, http=http, cluster=())
            elif match := _READY.match(text):
                self._ready_count[match[1]] += 1
            elif match := _ENDED.search(text):
                self._ended_count[match[1]] += 1
            self._changed.notify_all()
