"""What a simulated disk holds, and what of it a power cut leaves.

Every file has two contents: the one processes see (the page cache) and the durable one. A write changes the
first and is remembered; `sync` carries what is remembered over to the second, and a power cut carries over a
random part of it. Directories work the same way, with one difference: a file system journals names in order,
so of the changes to one directory a power cut keeps a prefix. A change that spans two directories (a rename)
is one transaction and is kept in both or in neither.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

_SECTOR_BYTES = 512  # what a device writes at once, so where most torn writes end


class Append(NamedTuple):
    position: int
    data: bytes


class Truncate(NamedTuple):
    size: int


class FileNode:
    """One file, whatever it is called; it lives as long as a name or an open handle refers to it."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.rotten: set[int] = set()  # bits that have flipped by themselves
        self._unsynced: list[Append | Truncate] = []

    def append(self, data: bytes) -> None:
        if data:
            self._unsynced.append(Append(len(self.content), data))
            self.content += data

    def truncate(self, size: int) -> None:
        self.rotten = {bit for bit in self.rotten if bit // 8 < size}
        self._unsynced.append(Truncate(size))
        _resize(self.content, size)

    def sync(self) -> None:
        for change in self._unsynced:
            _carry_over(change, self.durable)
        self._unsynced.clear()

    def scatter(self, rng: Random) -> None:
        """Carry over a random part of what was not synced, and forget the rest.

        This is a power cut, and also a failed fsync on Linux: there the pages are marked clean although
        they may never have reached the device, so that the next fsync has nothing to write and succeeds.
        """
        for change in self._unsynced:
            survivor = _survivor(change, rng)
            if survivor is not None:
                _carry_over(survivor, self.durable)
        self._unsynced.clear()

    def lose_power(self, rng: Random) -> None:
        self.scatter(rng)
        self.content = bytearray(self.durable)

    def flip(self, bit: int) -> None:
        """Rot one durable bit. The reader sees it at once, as if nothing had been cached."""
        self.rotten ^= {bit}
        index, mask = bit // 8, 1 << bit % 8
        self.durable[index] ^= mask
        if index < len(self.content):
            self.content[index] ^= mask

    def before_rot(self) -> bytearray:
        """The durable content with every bit as it was."""
        content = bytearray(self.durable)
        for bit in self.rotten:
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8
        return content


class DirNode:
    """One directory: its names as processes see them, and those that a power cut cannot take back."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirNode


class Link(NamedTuple):
    """A name set to a node, or removed where there is none."""

    directory: DirNode
    name: str
    node: Node | None


class Platter:
    """The tree of names."""

    def __init__(self) -> None:
        self._dir_count = 0
        self.root = self.new_dir()
        self._journal: list[tuple[Link, ...]] = []

    def new_dir(self) -> DirNode:
        self._dir_count += 1
        return DirNode(self._dir_count)

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in _split(path):
            if isinstance(node, FileNode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            child = node.names.get(name)
            if child is None:
                return None
            node = child
        return node

    def find_dir(self, path: str) -> DirNode:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def find_parent(self, path: str) -> tuple[DirNode, str]:
        """The directory that holds the path's last name, and that name."""
        if not _split(path):
            raise OSError(errno.EINVAL, "the root has no name", path)
        *parents, name = _split(path)
        return self.find_dir("/".join(parents)), name

    def relink(self, *links: Link) -> None:
        """Change names, all of them or none."""
        for link in links:
            _set_name(link.directory.names, link)
        self._journal.append(links)

    def sync_dir(self, directory: DirNode) -> None:
        """Make the directory's names durable, with the earlier changes that they are ordered after."""
        numbers = {directory.number}
        committed: list[tuple[Link, ...]] = []
        kept: list[tuple[Link, ...]] = []
        for links in reversed(self._journal):
            touched = _numbers(links)
            if numbers.isdisjoint(touched):
                kept.append(links)
            else:
                numbers.update(touched)
                committed.append(links)
        self._commit(reversed(committed))
        self._journal = kept[::-1]

    def lose_power(self, rng: Random) -> None:
        self._commit(self._surviving(rng))
        self._journal.clear()
        for _, node in self.walk_durable():
            match node:
                case FileNode():
                    node.lose_power(rng)
                case DirNode():
                    node.names = dict(node.durable)

    def used_bytes(self) -> int:
        return _used_bytes(self.root)

    def walk_durable(self) -> Iterator[tuple[str, Node]]:
        """Every durable path and its node, in order of path, beginning with the root."""
        yield from _walk("", self.root)

    def durable_files(self) -> dict[str, FileNode]:
        return {path: node for path, node in self.walk_durable() if isinstance(node, FileNode)}

    def _surviving(self, rng: Random) -> Iterator[tuple[Link, ...]]:
        counts: dict[int, int] = {}
        for links in self._journal:
            for number in _numbers(links):
                counts[number] = counts.get(number, 0) + 1
        left = {number: rng.randint(0, count) for number, count in counts.items()}
        for links in self._journal:
            touched = _numbers(links)
            if all(left[number] for number in touched):
                yield links
                for number in touched:
                    left[number] -= 1
            else:
                left.update(dict.fromkeys(touched, 0))

    def _commit(self, changes: Iterator[tuple[Link, ...]]) -> None:
        for links in changes:
            for link in links:
                _set_name(link.directory.durable, link)


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _numbers(links: tuple[Link, ...]) -> list[int]:
    """The directories a change touches, each once."""
    return list(dict.fromkeys(link.directory.number for link in links))


def _set_name(names: dict[str, Node], link: Link) -> None:
    if link.node is None:
        names.pop(link.name, None)
    else:
        names[link.name] = link.node


def _walk(path: str, node: Node) -> Iterator[tuple[str, Node]]:
    yield path, node
    if isinstance(node, DirNode):
        for name, child in sorted(node.durable.items(), key=lambda item: item[0]):
            yield from _walk(f"{path}/{name}" if path else name, child)


def _used_bytes(directory: DirNode) -> int:
    total = 0
    for node in directory.names.values():
        total += len(node.content) if isinstance(node, FileNode) else _used_bytes(node)
    return total


def _resize(content: bytearray, size: int) -> None:
    if size <= len(content):
        del content[size:]
    else:
        content += bytes(size - len(content))


def _carry_over(change: Append | Truncate, durable: bytearray) -> None:
    match change:
        case Truncate(size):
            _resize(durable, size)
        case Append(position, data):
            if len(durable) < position:
                _resize(durable, position)
            durable[position : position + len(data)] = data


def _survivor(change: Append | Truncate, rng: Random) -> Append | Truncate | None:
    """What a power cut leaves of one change: all, nothing, or the beginning of an append."""
    fate = rng.random()
    if fate < 1 / 3:
        return None
    if fate < 2 / 3 or isinstance(change, Truncate):
        return change
    kept_bytes = rng.randint(0, len(change.data))
    if rng.random() < 0.8:
        kept_bytes = max(0, kept_bytes - (change.position + kept_bytes) % _SECTOR_BYTES)
    return Append(change.position, change.data[:kept_bytes])
