"""The nodes by name and by number. A number belongs to its name for ever, even when the node has been removed: an old log or
client that speaks of the number must never mean another machine."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import structs

from goqueue.core.cluster.events import NodeRegistered, NodeRemoved, NodeStateChanged
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.model.cluster_errors import NodeNotFound

NUMBER_MAX = 2**31 - 1  # Kafka's broker ids are 32 bits wide
_FINAL_DIGITS = re.compile(r"[0-9]{1,10}\Z")


class NodeTable:
    def __init__(self) -> None:
        self._by_name: dict[str, NodeEntry] = {}
        self._by_number: dict[int, str] = {}
        self._removed: dict[str, int] = {}
        self._fenced_while_draining: set[str] = set()  # only ever asked for membership

    def entries(self) -> list[NodeEntry]:
        """By number."""
        return [self._by_name[self._by_number[number]] for number in sorted(self._by_number)]

    def find(self, name: str) -> NodeEntry | None:
        return self._by_name.get(name)

    def get(self, name: str) -> NodeEntry:
        entry = self._by_name.get(name)
        if entry is None:
            raise NodeNotFound(name)
        return entry

    def by_number(self, number: int) -> NodeEntry | None:
        name = self._by_number.get(number)
        return None if name is None else self._by_name[name]

    def states(self) -> dict[int, NodeState]:
        """By number. A standalone node is node 1, though it never registered."""
        if not self._by_name:
            return {1: NodeState.ALIVE}
        return {entry.number: entry.state for entry in self._by_name.values()}

    @property
    def is_empty(self) -> bool:
        return not self._by_name

    def was_draining(self, name: str) -> bool:
        """Whether it drained when it was fenced, in the same incarnation."""
        return name in self._fenced_while_draining

    def number_for(self, name: str, *, has_own_topics: bool) -> int:
        """What the name has, or ends in, or the smallest that is free. Topics from before there was a cluster are node 1's, so
        it is the first to come then."""
        known = self._by_name.get(name)
        if known is not None:
            return known.number
        if name in self._removed:
            return self._removed[name]
        if has_own_topics and self.is_empty and not self._removed:
            return 1
        taken = self._by_number.keys() | self._removed.values()
        digits = _FINAL_DIGITS.search(name)
        wanted = int(digits[0]) if digits else 0
        if 1 <= wanted <= NUMBER_MAX and wanted not in taken:
            return wanted
        return _smallest_free(taken)

    # ---------------------------------------------------------------- changes

    def register(self, event: NodeRegistered) -> None:
        self._removed.pop(event.name, None)
        self._fenced_while_draining.discard(event.name)
        self._put(
            NodeEntry(
                event.name,
                event.number,
                event.incarnation,
                event.endpoints,
                event.rack,
                event.version,
                NodeState.FENCED,
            )
        )

    def change_state(self, event: NodeStateChanged) -> None:
        entry = self._by_name[event.name]
        if event.state is NodeState.FENCED and entry.state is NodeState.DRAINING:
            self._fenced_while_draining.add(event.name)
        else:
            self._fenced_while_draining.discard(event.name)
        self._put(structs.replace(entry, state=event.state))

    def remove(self, event: NodeRemoved) -> None:
        del self._by_name[event.name]
        del self._by_number[event.number]
        self._fenced_while_draining.discard(event.name)
        self._removed[event.name] = event.number

    def _put(self, entry: NodeEntry) -> None:
        self._by_name[entry.name] = entry
        self._by_number[entry.number] = entry.name

    # ---------------------------------------------------------------- snapshots

    def removed(self) -> dict[str, int]:
        return {name: self._removed[name] for name in sorted(self._removed)}

    def fenced_while_draining(self) -> list[str]:
        return sorted(self._fenced_while_draining)

    def load(
        self, entries: Collection[NodeEntry], removed: dict[str, int], fenced_while_draining: Collection[str]
    ) -> None:
        """Into an empty table."""
        for entry in entries:
            self._put(entry)
        self._removed.update(removed)
        self._fenced_while_draining.update(fenced_while_draining)


def _smallest_free(taken: Collection[int]) -> int:
    number = 1
    while number in taken:
        number += 1
    return number
