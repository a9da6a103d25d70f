"""The servers of some lines: ours and the peers, started when the first line needs them, measured in turn, ended together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bench.peers.peer import PeerAbsent
from bench.workspace import fresh_folder

T = TypeVar("T")


class Named(Protocol):
    """What is measured in turn with others."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...


class Startable(Protocol):
    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Startable)
S = TypeVar("S", bound=Named)


class Sides(Generic[P, S]):
    """`ours` must start; a peer may be absent, and `absent` says why. Each is started in a folder of its own, and what it
    needs ends with `stack`."""

    def __init__(
        self,
        folder: Path,
        *,
        ours: Sequence[P],
        peers: Sequence[P],
        start: Callable[[P, Path, ExitStack], S],
        warm_up: Callable[[S], None],
    ) -> None:
        self._folder = folder
        self._ours = ours
        self._peers = peers
        self._start = start
        self._warm_up = warm_up
        self._started: list[S] = []
        self.stack = ExitStack()
        self.absent: dict[str, str] = {}  # peer to reason

    def all(self) -> list[S]:
        """Ours first, then every peer that can be had here."""
        if not self._started:
            self._started = [self._started_in_a_folder(one) for one in self._ours]
            for peer in self._peers:
                try:
                    self._started.append(self._started_in_a_folder(peer))
                except PeerAbsent as absent:
                    self.absent[peer.name] = str(absent)
            for side in self._started:
                self._warm_up(side)
        return list(self._started)

    def _started_in_a_folder(self, peer: P) -> S:
        return self._start(peer, self.stack.enter_context(fresh_folder(self._folder)), self.stack)


def interleave(sides: Sequence[S], round_count: int, measure: Callable[[S], T]) -> dict[str, list[T]]:
    """One side after the other, every round beginning with another one. Side to what it gave, by round."""
    taken: dict[str, list[T]] = {side.name: [] for side in sides}
    for turn in range(round_count):
        at = turn % len(sides)
        for side in [*sides[at:], *sides[:at]]:
            taken[side.name].append(measure(side))
    return taken
