"""Other brokers to be measured in the same run, on the same machine, by the same client and settings.

A peer is registered here once it can be installed from where this project may install from. One that is not on the
machine says why, and the report says so too; a line is never made up for it.
"""

from __future__ import annotations

from typing import Protocol

from bench.line import Line
from bench.scale import Run


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    def available(self) -> str | None:
        """None if it can run here, else the reason why it cannot."""

    def run(self, run: Run) -> list[Line]:
        """Start it, measure it next to ours, read back what was written, and stop it by its own handle."""


PEERS: tuple[Peer, ...] = ()
