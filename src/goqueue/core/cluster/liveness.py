"""Who has been heard of lately. The controller keeps this in memory: a new one begins anew and gives everybody the full time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from goqueue.core.cluster.nodes import NodeEntry
from goqueue.model.errors import invariant


class Status(StrEnum):
    UNKNOWN = "unknown"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEAVING = "leaving"


class _Heard(Struct):
    incarnation: str
    at_ms: int
    is_first_hand: bool  # False: given the benefit of the doubt since then
    is_leaving: bool = False
    is_reported: bool = False  # as dead


class Liveness:
    def __init__(self, heartbeat_ms: int, suspect_ms: int, dead_ms: int) -> None:
        invariant(
            0 < heartbeat_ms <= suspect_ms <= dead_ms, "a node must be able to beat before it is missed"
        )
        self.heartbeat_ms = heartbeat_ms
        self._suspect_ms = suspect_ms
        self._dead_ms = dead_ms
        self._heard: dict[str, _Heard] = {}

    def begin(self, nodes: Iterable[NodeEntry], now_ms: int) -> None:
        """This node is the controller from now on."""
        self._heard = {node.name: _Heard(node.incarnation, now_ms, is_first_hand=False) for node in nodes}

    def heard(self, name: str, incarnation: str, now_ms: int, *, is_leaving: bool = False) -> None:
        self._heard[name] = _Heard(incarnation, now_ms, is_first_hand=True, is_leaving=is_leaving)

    def heard_before(self, name: str, at_ms: int) -> None:
        """Of one whose silence is known from elsewhere: it does not get the full time again."""
        heard = self._heard.get(name)
        if heard is not None and at_ms < heard.at_ms:
            self._heard[name] = _Heard(heard.incarnation, at_ms, is_first_hand=False)

    def excuse(self, stall_ms: int, now_ms: int) -> None:
        """This node itself stood still for so long. What others said meanwhile is still to be heard: for that time nobody's
        silence counts."""
        for heard in self._heard.values():
            heard.at_ms = min(heard.at_ms + stall_ms, now_ms)

    def forget(self, name: str) -> None:
        """It has been removed."""
        self._heard.pop(name, None)

    def status(self, name: str, now_ms: int) -> Status:
        heard = self._heard.get(name)
        if heard is None:
            return Status.UNKNOWN
        silence_ms = now_ms - heard.at_ms
        if silence_ms >= self._dead_ms:
            return Status.DEAD
        if not heard.is_first_hand:
            return Status.UNKNOWN
        if silence_ms >= self._suspect_ms:
            return Status.SUSPECT
        return Status.LEAVING if heard.is_leaving else Status.ALIVE

    def heard_ms(self, name: str) -> int | None:
        """When it was last heard of, by this controller."""
        heard = self._heard.get(name)
        return heard.at_ms if heard is not None and heard.is_first_hand else None

    def dead(self, now_ms: int) -> list[tuple[str, str]]:
        """Names and incarnations, sorted; the same ones again until they are heard of or forgotten."""
        found: list[tuple[str, str]] = []
        for name, heard in sorted(self._heard.items()):
            if now_ms - heard.at_ms >= self._dead_ms:
                heard.is_reported = True
                found.append((name, heard.incarnation))
        return found

    def next_ms(self) -> int | None:
        """When to ask for the dead again; None if nobody is left to lose."""
        return min(
            (heard.at_ms + self._dead_ms for heard in self._heard.values() if not heard.is_reported),
            default=None,
        )
