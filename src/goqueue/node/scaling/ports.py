"""What one node wants of the others for topics with `scaling=keyed`: `goqueue.peer` carries it over the wire."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Part(Struct, frozen=True):
    """Records of one batch that all live in one partition."""

    topic: str
    source: int  # the partition that they were sent to
    home: int
    batch: bytes


class SilenceCall(Struct, frozen=True):
    """How long has a producer been silent in a partition?"""

    topic: str
    partition: int
    producer_id: int


class Silence(Struct, frozen=True):
    """As its leader has seen it."""

    quiet_s: float  # since something of the producer was sent on from there, or refused; 0 while it has yet to come again
    led_s: float  # it has led for so long, and seen nothing before


class RemoteParts(Protocol):
    async def send(self, node: str, part: Part) -> int:
        """Put it into its home, which that node leads; the offset of the batch there. It is committed when this returns; an
        error means that this is not known."""

    async def silence(self, node: str, call: SilenceCall) -> Silence:
        """Of a partition that that node leads."""
