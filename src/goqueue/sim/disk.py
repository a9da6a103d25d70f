"""A disk in memory that behaves as badly as real ones: the other implementation of `goqueue.log.disk`.

`SimDisk` is the device; it outlives processes. Each life of a process uses it through its own `mount()`,
which `crash()` (a power cut: unsynced changes may be lost, see `goqueue.sim.platter`) and `kill()` (kill -9:
everything written stays) render dead. Whatever a process still tries through a dead mount or one of its
files raises `PowerLost`, so code that lingers on after its death can change nothing.

Faults happen only when asked for; where they strike is decided by the random source handed in, so a seed
repeats a run exactly.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Literal, NamedTuple

from goqueue.log.disk import Entry, NotCached, Usage
from goqueue.sim.platter import DirNode, FileNode, Link, Platter

Operation = Literal[
    "append",
    "list",
    "make_dir",
    "open",
    "read",
    "remove",
    "remove_tree",
    "rename",
    "sync",
    "sync_dir",
    "truncate",
    "usage",
]

_UNLIMITED_BYTES = 1 << 40


class PowerLost(OSError):
    """The process that asks no longer exists, as far as its disk is concerned.

    An `OSError`, so that code which translates those takes the path it would take for a dead device; a
    real process would not run at all, and what this one concludes can no longer reach anything durable.
    """

    def __init__(self) -> None:
        super().__init__(errno.EIO, "power lost")


class Flip(NamedTuple):
    path: str
    bit: int


@dataclass(slots=True)
class Counters:
    operations: int = 0
    syncs: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(slots=True)
class _Fault:
    operation: Operation
    error: int
    after: int


class SimDisk:
    """The device and its fault knobs."""

    def __init__(
        self,
        rng: Random,
        *,
        capacity_bytes: int | None = None,
        not_cached_rate: float = 0.1,
        stall: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`stall` makes the caller wait in virtual time (`SimLoop.stall`); a disk without one is never
        slow."""
        self.rng = rng
        self.counters = Counters()
        self.capacity_bytes = capacity_bytes
        self.not_cached_rate = not_cached_rate
        self.on_power_cut: Callable[[], None] | None = None
        self.platter = Platter()
        self._stall = stall
        self._life = 0
        self._faults: list[_Fault] = []
        self._slow_s: dict[Operation, float] = {}
        self._crash_countdown = 0

    def mount(self) -> Mount:
        """The disk as a new process sees it. Mounts handed out before are dead from here on."""
        self._life += 1
        return Mount(self, self._life)

    def kill(self) -> None:
        """The process dies and the machine stays up: all that was written is still there."""
        self._life += 1

    def crash(self) -> None:
        """The power fails: what was not synced survives in part, torn, or not at all."""
        self._life += 1
        self._crash_countdown = 0
        self.platter.lose_power(self.rng)

    def wipe(self) -> None:
        """Another disk, with nothing on it, is in its place. Nobody may use it at this moment."""
        self._life += 1
        self._crash_countdown = 0
        self.platter = Platter()

    def crash_after(self, operations: int) -> None:
        """Cut the power in the middle of the n-th mutating operation from here; 1 is the next one."""
        self._crash_countdown = operations

    def fail_next(self, operation: Operation, *, error: int = errno.EIO, after: int = 0) -> None:
        """Fail one operation of this kind, once `after` others of the kind have gone well.

        A failed append leaves a prefix. A failed sync forgets what was unsynced, so that the next one
        succeeds although the data may not survive a power cut. Anything else fails without effect.
        """
        self._faults.append(_Fault(operation, error, after))

    def slow(self, operation: Operation, seconds: float) -> None:
        """Make operations of this kind take about `seconds`; 0 makes them quick again."""
        self._slow_s[operation] = seconds

    def free(self, count: int) -> None:
        """Somebody made room: `count` bytes more fit."""
        if self.capacity_bytes is not None:
            self.capacity_bytes += count

    def calm(self) -> None:
        """Take back every fault that was asked for and has not struck."""
        self._faults.clear()
        self._slow_s.clear()
        self._crash_countdown = 0
        self.capacity_bytes = None

    def flip_bit(self, path: str, bit: int) -> Flip:
        self.platter.durable_files()[path].flip(bit)
        return Flip(path, bit)

    def flip_random_bit(self, match: str = "*") -> Flip | None:
        """Flip one durable bit in the files whose path matches a shell pattern; None if they are empty."""
        files = {p: node for p, node in self.platter.durable_files().items() if fnmatchcase(p, match)}
        bit_count = 8 * sum(len(node.durable) for node in files.values())
        if not bit_count:
            return None
        bit = self.rng.randrange(bit_count)
        for path, node in files.items():
            if bit < 8 * len(node.durable):
                return self.flip_bit(path, bit)
            bit -= 8 * len(node.durable)
        return None

    def snapshot(self) -> dict[str, bytes]:
        """Path and content of every durable file: the least that a power cut leaves."""
        return {path: bytes(node.durable) for path, node in self.platter.durable_files().items()}

    def usage(self) -> Usage:
        total = _UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return Usage(total, max(0, total - self.platter.used_bytes()))

    def check_alive(self, life: int) -> None:
        if life != self._life:
            raise PowerLost

    def is_cached(self) -> bool:
        """Whether a read finds its bytes in memory. A slow device has none there, or it would be quick."""
        return not self._slow_s.get("read") and self.rng.random() >= self.not_cached_rate

    def observe(self, life: int, operation: Operation) -> None:
        """Account for an operation that changes nothing, and fail it if it is due."""
        error = self._begin(life, operation)
        if error is not None:
            raise OSError(error, os.strerror(error))

    def mutate(
        self,
        life: int,
        operation: Operation,
        action: Callable[[], None],
        failing: Callable[[], None] = lambda: None,
    ) -> None:
        """Do `action`, unless the power or the operation fails; `failing` is what a failure leaves."""
        error = self._begin(life, operation)
        if self._power_fails():
            self._cut_power(action)
            raise PowerLost
        if error is not None:
            failing()
            raise OSError(error, os.strerror(error))
        action()

    def _begin(self, life: int, operation: Operation) -> int | None:
        """The error that the operation is to end with, if any."""
        self.check_alive(life)
        self.counters.operations += 1
        self.counters.syncs += operation in ("sync", "sync_dir")
        seconds = self._slow_s.get(operation, 0.0)
        if seconds:
            self._stall(seconds * self.rng.uniform(0.5, 1.5))
        for fault in self._faults:
            if fault.operation == operation:
                if fault.after == 0:
                    self._faults.remove(fault)
                    return fault.error
                fault.after -= 1
        return None

    def _power_fails(self) -> bool:
        if self._crash_countdown == 0:
            return False
        self._crash_countdown -= 1
        return self._crash_countdown == 0

    def _cut_power(self, action: Callable[[], None]) -> None:
        # Half of the operations are cut before they reach the device. The others get as far as the crash
        # lets them: whatever needs a sync may still be lost or torn; a sync itself is complete and its
        # caller never hears of it.
        if self.rng.random() < 0.5:
            with contextlib.suppress(OSError):
                action()
        self.crash()
        if self.on_power_cut is not None:
            self.on_power_cut()


class SimFile:
    """A handle that one life of a process holds on a file."""

    def __init__(self, disk: SimDisk, life: int, node: FileNode) -> None:
        self._disk = disk
        self._life = life
        self._node = node

    def append(self, chunks: Sequence[bytes | memoryview]) -> None:
        data = b"".join(chunks)
        self._disk.mutate(
            self._life, "append", lambda: self._append(data), lambda: self._append_part(data, len(data))
        )

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        disk = self._disk
        disk.check_alive(self._life)
        if cached_only and not disk.is_cached():
            raise NotCached
        disk.observe(self._life, "read")
        data = bytes(memoryview(self._node.content)[position : position + size])
        disk.counters.read_bytes += len(data)
        return data

    def truncate(self, size: int) -> None:
        self._disk.mutate(self._life, "truncate", lambda: self._node.truncate(size))

    def size(self) -> int:
        self._disk.check_alive(self._life)
        return len(self._node.content)

    def sync(self) -> None:
        self._disk.mutate(
            self._life, "sync", self._node.sync, failing=lambda: self._node.scatter(self._disk.rng)
        )

    def _append(self, data: bytes) -> None:
        if self._disk.capacity_bytes is not None:
            free_bytes = self._disk.usage().free_bytes
            if free_bytes < len(data):
                self._append_part(data, free_bytes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.counters.written_bytes += len(data)
        self._node.append(data)

    def _append_part(self, data: bytes, bytes_max: int) -> None:
        part = data[: self._disk.rng.randint(0, bytes_max)]
        self._disk.counters.written_bytes += len(part)
        self._node.append(part)


class Mount:
    """The `Disk` of one life of a process."""

    def __init__(self, disk: SimDisk, life: int) -> None:
        self._disk = disk
        self._platter = disk.platter
        self._life = life

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._disk.check_alive(self._life)
        parent, name = self._platter.find_parent(path)
        if create and name not in parent.names:
            link = Link(parent, name, FileNode())
            self._disk.mutate(self._life, "open", lambda: self._platter.relink(link))
        else:
            self._disk.observe(self._life, "open")
        node = parent.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, DirNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return SimFile(self._disk, self._life, node)

    def list(self, path: str) -> builtins.list[Entry]:
        self._disk.observe(self._life, "list")
        if self._platter.find(path) is None:
            return []
        names = self._platter.find_dir(path).names
        return sorted(
            Entry(name, len(node.content), False) if isinstance(node, FileNode) else Entry(name, 0, True)
            for name, node in names.items()
        )

    def make_dir(self, path: str) -> None:
        self._disk.mutate(self._life, "make_dir", lambda: self._make_dir(path))

    def rename(self, source: str, target: str) -> None:
        self._disk.mutate(self._life, "rename", lambda: self._rename(source, target))

    def remove(self, path: str) -> None:
        self._disk.mutate(self._life, "remove", lambda: self._remove(path))

    def remove_tree(self, path: str) -> None:
        self._disk.mutate(self._life, "remove_tree", lambda: self._remove_tree(path))

    def sync_dir(self, path: str) -> None:
        self._disk.mutate(
            self._life, "sync_dir", lambda: self._platter.sync_dir(self._platter.find_dir(path))
        )

    def usage(self) -> Usage:
        self._disk.observe(self._life, "usage")
        return self._disk.usage()

    def _make_dir(self, path: str) -> None:
        directory = self._platter.root
        for name in filter(None, path.split("/")):
            if name not in directory.names:
                self._platter.relink(Link(directory, name, self._platter.new_dir()))
            child = directory.names[name]
            if isinstance(child, FileNode):
                raise FileExistsError(errno.EEXIST, "a file has this name", path)
            directory = child

    def _rename(self, source: str, target: str) -> None:
        source_dir, source_name = self._platter.find_parent(source)
        target_dir, target_name = self._platter.find_parent(target)
        node = source_dir.names.get(source_name)
        replaced = target_dir.names.get(target_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if node is replaced:
            return
        if target.startswith(f"{source}/"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), target)
        if isinstance(replaced, DirNode) and isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        if isinstance(replaced, FileNode) and isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", target)
        if isinstance(replaced, DirNode) and replaced.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._platter.relink(Link(source_dir, source_name, None), Link(target_dir, target_name, node))

    def _remove(self, path: str) -> None:
        node = self._platter.find(path)
        if isinstance(node, DirNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is not None:
            self._platter.relink(Link(*self._platter.find_parent(path), None))

    def _remove_tree(self, path: str) -> None:
        if self._platter.find(path) is None:
            return
        self._empty(self._platter.find_dir(path))
        self._platter.relink(Link(*self._platter.find_parent(path), None))

    def _empty(self, directory: DirNode) -> None:
        for name, node in sorted(directory.names.items(), key=lambda item: item[0]):
            if isinstance(node, DirNode):
                self._empty(node)
            self._platter.relink(Link(directory, name, None))
