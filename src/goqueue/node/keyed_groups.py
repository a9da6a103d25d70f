"""What groups have to do with topics of `scaling=keyed`, put together: gates are kept, and shrinking comes to its end."""

from __future__ import annotations

from collections.abc import Coroutine

from goqueue.core.cluster.scaling import Scaling as Scaling
from goqueue.core.cluster.scaling import Stage as Stage
from goqueue.node.cluster.shrinking import Shrinking
from goqueue.node.commit import Spawn
from goqueue.node.directory import Directory
from goqueue.node.forwarding import Forwarding
from goqueue.node.groups.gate_reading import Finding, GateReading
from goqueue.node.groups.gatekeeper import Gatekeeper
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.standings import StandingsHere
from goqueue.node.metadata import Metadata
from goqueue.node.other_nodes import OtherNodes
from goqueue.node.queue.led_ledgers import LedgersAsked
from goqueue.node.spread.reading import Reading
from goqueue.node.spread.standings import StandingsSeen


class KeyedGroups:
    def __init__(
        self,
        groups: Groups,
        metadata: Metadata,
        directory: Directory,
        reading: Reading,
        finding: Finding,
        ledgers: LedgersAsked,
        forwarding: Forwarding | None,
        nodes: OtherNodes | None,
        spawn: Spawn,
        *,
        name: str,
        wait_ms: int,
    ) -> None:
        self.scaling_of = metadata.catalog.scaling
        gate_reading = GateReading(reading, finding, groups.shards.notes)
        self._keeper = Gatekeeper(groups, lambda: metadata.catalog, gate_reading, spawn, wait_ms=wait_ms)
        self.here = StandingsHere(groups.shards, metadata, gate_reading, ledgers)
        self.standings = StandingsSeen(self.here, name, forwarding, nodes)
        self.shrinking = Shrinking(metadata, directory, self.standings)
        groups.when_beginning(gate_reading.beginning)
        metadata.when_applied(self._keeper.note_catalog)
        metadata.when_restored(self._keeper.note_all)

    def work(self) -> list[Coroutine[None, None, None]]:
        """What has to run all the time."""
        return [self._keeper.run(), self.shrinking.run()]
