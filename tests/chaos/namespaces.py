"""Each node and the clients in a network of their own, joined by a switch: Linux network namespaces and a bridge.

What one node sends another is lost by giving the sender a wrong hardware address of the receiver: the switch has nobody for
it, the sender hears nothing, and the other direction is untouched, as with a network that loses packets and unlike a refused
connection. A node is isolated by taking its port of the switch down. Everything has the process's number in its name, so that
the next run finds and removes what one that was killed left behind.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tests.chaos.loopback import start_client
from tests.chaos.node_process import NodeProcesses
from tests.chaos.world import Addresses, NotPossible, name_of

_PREFIX: Final = "gqchaos"
_OURS: Final = re.compile(rf"{_PREFIX}-(\d+)-\w+")
_NETWORK: Final = "10.213.77"
_CLIENTS: Final = 200  # the last number of the clients' address
_NOBODY: Final = "02:00:00:00:00:fe"
_DISK_BYTES: Final = 512 << 20
_BALLAST: Final = "ballast"
_DATA: Final = "data"
_ANSWER_S: Final = 20.0
_BURST: Final = "32kb"
_UNTOUCHED: Final = "networks lose packets and leave connections alone; use --world loopback"
_QUEUE: Final = "400ms"  # what would wait longer than that is lost


class NamespaceWorld:
    """The last node has a small disk of its own, which can be filled; nobody else's."""

    def __init__(self, folder: Path, node_count: int, older: Path | None = None) -> None:
        self.node_count = node_count
        self.refusals = {"reset": _UNTOUCHED}
        self._folder = folder
        self._cuts: set[tuple[int, int]] = set()
        self._down: set[int] = set()
        self._shaped: set[int] = set()  # whose cable is slow or narrow
        self._small_disk: Path | None = None
        remove_leftovers()
        numbers = range(1, node_count + 1)
        self._addresses = Addresses(
            kafka=[f"{_NETWORK}.{number}:9092" for number in numbers],
            http=[f"{_NETWORK}.{number}:8080" for number in numbers],
            cluster=[f"{_NETWORK}.{number}:7000" for number in numbers],
        )
        self.nodes = NodeProcesses(
            folder,
            self._addresses,
            data=lambda number: folder / name_of(number) / _DATA,
            prefix=lambda number: ("ip", "netns", "exec", _space(number)),
            older=older,
        )
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def addresses(self) -> Addresses:
        return self._addresses

    def cut(self, source: int, target: int) -> None:
        place = f"{_NETWORK}.{target}"
        _ip(
            "-n",
            _space(source),
            "neigh",
            "replace",
            place,
            "lladdr",
            _NOBODY,
            "nud",
            "permanent",
            "dev",
            "eth0",
        )
        self._cuts.add((source, target))

    def isolate(self, node: int) -> None:
        _ip("-n", _space("hub"), "link", "set", f"port{node}", "down")
        self._down.add(node)

    def slow(self, node: int, delay_ms: int) -> None:
        self._shape(node, "netem", "delay", f"{delay_ms}ms", f"{delay_ms // 4}ms")

    def reset(self, node: int) -> None:
        raise NotPossible(_UNTOUCHED)

    def narrow(self, node: int, kilobits: int) -> None:
        self._shape(node, "tbf", "rate", f"{kilobits}kbit", "burst", _BURST, "latency", _QUEUE)

    def _shape(self, node: int, *how: str) -> None:
        for end in _ends(node):
            _tc(end, "replace", *how)
        self._shaped.add(node)

    def fill_disk(self, node: int) -> None:
        """Of the node with the small disk, whichever is named: there is no other."""
        if self._small_disk is None:
            raise NotPossible(self.refusals["full-disk"])
        with (self._small_disk / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(1 << 16))
            except OSError:
                return  # now it is full

    def heal(self) -> None:
        for source, target in sorted(self._cuts):
            _ip("-n", _space(source), "neigh", "del", f"{_NETWORK}.{target}", "dev", "eth0")
        for node in sorted(self._down):
            _ip("-n", _space("hub"), "link", "set", f"port{node}", "up")
        for node in sorted(self._shaped):
            for end in _ends(node):
                _tc(end, "del")
        self._cuts, self._down, self._shaped = set(), set(), set()
        if self._small_disk is not None:
            (self._small_disk / _BALLAST).unlink(missing_ok=True)

    def client(self, command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_client(["ip", "netns", "exec", _space("clients"), *command], errors)

    def close(self) -> None:
        self.nodes.close()
        try:
            self._save_disk()
        finally:
            _remove(os.getpid())

    def _save_disk(self) -> None:
        """Beside those of the other nodes: what was on the small disk goes with it."""
        if self._small_disk is not None and (self._small_disk / _DATA).exists():
            target = self._folder / f"{self._small_disk.name}.{_DATA}"
            shutil.copytree(self._small_disk / _DATA, target, dirs_exist_ok=True)

    # ---------------------------------------------------------------- building

    def _build(self) -> None:
        _ip("netns", "add", _space("hub"))
        _ip("-n", _space("hub"), "link", "add", "hub0", "type", "bridge")
        _ip("-n", _space("hub"), "link", "set", "hub0", "up")
        for number in range(1, self.node_count + 1):
            self._join(str(number), number)
        self._join("clients", _CLIENTS)
        if not _can_shape("netem", "delay", "1ms"):
            self.refusals["slow"] = "the kernel has no netem (module sch_netem)"
        if not _can_shape("tbf", "rate", "1mbit", "burst", _BURST, "latency", _QUEUE):
            self.refusals["narrow"] = "the kernel has no token buckets (module sch_tbf)"
        self._small_disk = self._mount(name_of(self.node_count))

    def _join(self, name: str, number: int) -> None:
        """A namespace with a cable to the switch."""
        space, hub, port = _space(name), _space("hub"), f"port{number}"
        _ip("netns", "add", space)
        _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", hub, "link", "set", port, "master", "hub0", "up")
        _ip("-n", space, "addr", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")

    def _mount(self, name: str) -> Path | None:
        place = self._folder / name
        place.mkdir(parents=True, exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"size={_DISK_BYTES}", f"{_PREFIX}-{os.getpid()}-disk", str(place)]
        done = subprocess.run(["mount", *options], capture_output=True, timeout=_ANSWER_S, check=False)
        if done.returncode:
            self.refusals["full-disk"] = f"no disk of its own: {done.stderr.decode().strip()}"
            return None
        return place


# -------------------------------------------------------------------- what the kernel is asked


def why_not() -> str | None:
    """Why there can be no namespaces here; None where there can."""
    if os.geteuid():
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "there is no program `ip` (of iproute2)"
    name = _space("probe")
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "probe0", "type", "bridge")
    except (NotPossible, OSError) as error:
        return str(error)
    finally:
        _quietly("ip", "netns", "del", name)
    return None


def remove_leftovers() -> None:
    """Of runs whose process is gone."""
    for pid in sorted(set(_pids_of(_names()) + _pids_of(_mounts()))):
        if not Path(f"/proc/{pid}").exists():
            _remove(pid)


def _remove(pid: int) -> None:
    for name in _names():
        if name.startswith(f"{_PREFIX}-{pid}-"):
            for inside in _run("ip", "netns", "pids", name).split():
                with _gone():
                    os.kill(int(inside), signal.SIGKILL)
            _quietly("ip", "netns", "del", name)
    for source, place in _mounts().items():
        if source.startswith(f"{_PREFIX}-{pid}-"):
            _quietly("umount", "-l", place)


def _pids_of(names: Sequence[str] | dict[str, str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _OURS.fullmatch(name))]


def _names() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.split()]


def _mounts() -> dict[str, str]:
    rows = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return {row[0]: row[1] for row in rows if row[0].startswith(f"{_PREFIX}-")}


def _space(name: str | int) -> str:
    return f"{_PREFIX}-{os.getpid()}-{name}"


def _can_shape(*how: str) -> bool:
    try:
        _tc(_ends(1)[0], "replace", *how)
    except NotPossible:
        return False
    _tc(_ends(1)[0], "del")
    return True


def _ends(node: int) -> list[tuple[str, str]]:
    """Of a node's cable: namespace and device. What leaves at an end is what it does to the other."""
    return [(_space(node), "eth0"), (_space("hub"), f"port{node}")]


def _tc(end: tuple[str, str], action: str, *what: str) -> None:
    space, device = end
    _run_or_raise("ip", "netns", "exec", space, "tc", "qdisc", action, "dev", device, "root", *what)


def _ip(*words: str) -> None:
    _run_or_raise("ip", *words)


def _run_or_raise(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, timeout=_ANSWER_S, check=False)
    if done.returncode:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.decode().strip()}")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, timeout=_ANSWER_S, check=False)
    return done.stdout.decode()


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, timeout=_ANSWER_S, check=False)


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        pass  # it was faster
