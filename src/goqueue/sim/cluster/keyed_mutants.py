"""Deliberate mistakes about topics whose partitions come and go.

`show_what_is_held` is not in `goqueue.sim.mutants.MUTANTS`: no seed that was tried catches it, because groups seldom read so fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import replace

from goqueue.core.cluster.scaling import Scaling
from goqueue.core.group.gates import NOTHING, Gates
from goqueue.core.producer import is_relayed
from goqueue.log.batch import BatchHeader
from goqueue.log.records import Row
from goqueue.node.partition import Partition
from goqueue.node.scaling import division
from goqueue.node.scaling.division import Division
from goqueue.node.scaling.earlier import Earlier
from goqueue.node.scaling.ports import Silence, SilenceCall


@contextmanager
def ignore_gates() -> Iterator[None]:
    """A group is given a partition though it has not read the one before it."""
    with (
        patch.object(Gates, "blocked", lambda self, group_id, topic: NOTHING),
        patch.object(Gates, "withheld", lambda self, group_id, places: []),
    ):
        yield


@contextmanager
def show_what_is_held() -> Iterator[None]:
    """A partition that stays shows what the others send to it before every group knows that they come first."""
    with patch.object(Partition, "show_until", lambda self, hold: None):
        yield


@contextmanager
def send_on_as_the_producer() -> Iterator[None]:
    """What is sent on has the id of its producer, whose sequences in that partition are others."""
    with patch.object(division, "relayed_id", lambda producer_id, partition: producer_id):
        yield


@contextmanager
def send_on_without_a_name() -> Iterator[None]:
    """What is sent on has no id at all: whatever comes again is stored again."""
    with_rows = division._with

    def nameless(header: BatchHeader, rows: list[Row]) -> bytes:
        if is_relayed(header.producer_id):
            header = header._replace(producer_id=-1, producer_epoch=-1, base_sequence=-1)
        return with_rows(header, rows)

    with patch.object(division, "_with", nameless):
        yield


@contextmanager
def let_everybody_straight_in() -> Iterator[None]:
    """Nobody asks whether something of the producer is still on its way through the old partition."""

    def through(self: Division, partition: Partition, scaling: Scaling, header: BatchHeader) -> bool:
        return True

    with patch.object(Division, "_is_through", through):
        yield


@contextmanager
def believe_in_time_alone() -> Iterator[None]:
    """Who has been quiet for a moment is let in, whether or not the old partition has taken what it had (ADR 38)."""
    silence = Division.silence

    def without_evidence(self: Division, call: SilenceCall) -> Silence:
        return replace(silence(self, call), taken_ms=None)

    with patch.object(Division, "silence", without_evidence):
        yield


@contextmanager
def ask_nobody_where_keys_lived() -> Iterator[None]:
    """A batch that comes again is stored where its keys live now, though it was stored where they lived before (ADR 40)."""

    def has_none(self: Earlier, *about: object) -> bool:
        return False

    with patch.object(Earlier, "may_hold", has_none):
        yield
