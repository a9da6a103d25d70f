"""Other brokers to be measured in the same run, on the same machine, by the same client and settings.

A peer that cannot be had on this machine says why, and the report says so too; a line is never made up for it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class PeerAbsent(Exception):
    """It cannot be installed here; the text is the reason."""


class KafkaServer(Protocol):
    """A running server that speaks Kafka's protocol, in a process of its own."""

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        """Ready to be used when this returns. `is_synced`: every batch is on the disk before it is acknowledged,
        for servers that do not do so for `acks=all` by themselves."""

    def delete_topic(self, name: str) -> None: ...


class Peer(Protocol):
    @property
    def name(self) -> str:
        """One word, the end of a line's name."""

    @property
    def title(self) -> str: ...

    @property
    def is_broker(self) -> bool:
        """False for a stand-in that keeps only the newest messages and lets a waiting fetch sleep through new ones."""

    def start(self, folder: Path) -> AbstractContextManager[KafkaServer]:
        """Install it if need be (`PeerAbsent` if that is impossible) and start it; it ends with the context."""
