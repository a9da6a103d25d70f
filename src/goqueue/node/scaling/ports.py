"""What one node wants of the others for topics with `scaling=keyed`: `goqueue.peer` carries it over the wire."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

_MARGIN_S: Final = 1.0  # for what two leaders say to each other, and for metadata that is on its way
NOTHING_YET: Final = -(1 << 63)  # before any time that a batch can have


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
    """As its leader has seen it. What has a default is not said by nodes of older versions."""

    quiet_s: float  # since something of the producer was sent on from there, or refused; 0 while something is awaited
    led_s: float  # it has led for so long, and seen nothing before
    is_awaited: bool = False  # something of it was refused and has yet to come again, or is being worked on
    # Of the newest batch that is taken, by the producer's own clock; NOTHING_YET of one that the partition knows without that; None of
    # one that the partition does not know.
    taken_ms: int | None = None
    known_s: float | None = (
        None  # the partition has known it for so long; None: since before its leader began
    )
    has_strayed: bool = False  # something of it that came there lived elsewhere

    def needs_evidence(self, open_s: float) -> bool:
        """Of a producer that sends to a partition which has been open for so long, whether it may have sent the same keys to this
        one before."""
        if self.taken_ms is None:
            return False
        return self.has_strayed or self.known_s is None or self.known_s + _MARGIN_S > open_s

    def has_all_before(self, base_ms: int) -> bool:
        """Whether everything is taken that the producer meant for the partition before that time. It comes in the order in which
        it was handed over, so it is if something younger is."""
        return self.taken_ms is not None and self.taken_ms > base_ms


class HeldCall(Struct, frozen=True):
    """What does a partition hold of a batch that was sent on to it when the batch came before?"""

    topic: str
    partition: int
    producer_id: int  # under which it was sent on
    epoch: int
    sequence: int  # of the first record of the batch
    applied_index: int  # whoever answers must have applied so much: then it takes no record any more that lives elsewhere by now


class Held(Struct, frozen=True):
    newest: int | None = None  # sequence of what was sent on to it; None: nothing was
    offsets: dict[int, int] = {}  # of the records of the batch that it holds, by their positions in it


class RemoteParts(Protocol):
    async def send(self, node: str, part: Part) -> int:
        """Put it into its home, which that node leads; the offset of the batch there. It is committed when this returns; an
        error means that this is not known."""

    async def silence(self, node: str, call: SilenceCall) -> Silence:
        """Of a partition that that node leads."""

    async def held(self, node: str, call: HeldCall) -> Held:
        """By a partition that that node leads."""
