"""What must be true of topics that get shorter, whatever failed: one class per invariant.

Of the invariants of every cluster those hold here too that say nothing of what is gone: `CHECKERS_OF_ALL`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Protocol

from goqueue.log.batch import decode_batch, read_header
from goqueue.model.record import StoredRecord
from goqueue.sim.cluster.checkers import (
    AckedOnMinInSyncDisks,
    ClusterChecker,
    EpochsFence,
    HighWatermarkNeverGoesBack,
    MetadataAgrees,
    OneLeaderPerEpoch,
    OneValuePerOffset,
    ReadsStopAtHighWatermark,
)
from goqueue.sim.cluster.shortening_history import (
    Begun,
    Deleted,
    Final,
    Look,
    Replica,
    ShorteningHistory,
    is_tombstone,
    key_of,
)
from goqueue.sim.history import Place
from goqueue.sim.kafka.history import Part


class ShorteningChecker(Protocol):
    def check(self, history: ShorteningHistory) -> None: ...


class OnlyWhatWasSent:
    """What is served was sent, and nothing is served at two offsets (a tombstone looks like another), unless the first was deleted
    by then: a replica that began anew behind it has never heard of its producer, and takes what comes again."""

    def check(self, history: ShorteningHistory) -> None:
        places: dict[str, Place] = {}
        for look in history.looks:
            for offset, value in look.values.items():
                place = Place(*look.part, offset)
                if value not in history.sent_s:
                    history.violate(f"{place} holds {value!r}, which nobody sent")
                first = place if is_tombstone(value) else places.setdefault(value, place)
                if first != place and not self._is_deleted(history, min(first, place), look.answered_s):
                    history.violate(f"{value!r} is stored at {first} and at {place}")

    def _is_deleted(self, history: ShorteningHistory, place: Place, by_s: float) -> bool:
        part, offset = Part(place.topic, place.partition), place.offset
        told: list[Begun | Deleted] = [*history.begun, *history.deleted]
        return any(one.part == part and one.offset > offset and one.answered_s <= by_s for one in told)


class AckedIsRead:
    """Whoever reads past an offset that was acknowledged is given what stands there, unless compaction may have removed it: then
    a later record of its key had been sent by then, or it is a tombstone and no earlier one of its key is in the answer."""

    def check(self, history: ShorteningHistory) -> None:
        for look in history.looks:
            acked = history.acked.get(look.part, {})
            for offset in range(look.start, look.next_offset):
                value = acked.get(offset)
                if value is None or look.values.get(offset) == value:
                    continue
                if history.is_compacted(look.part) and self._may_be_gone(history, look, offset, value):
                    continue
                history.violate(
                    f"{look.reader} was given {look.values.get(offset)!r} at {Place(*look.part, offset)} by {look.host} at "
                    f"{look.answered_s:.3f} s, where {value!r} was acknowledged"
                )

    def _may_be_gone(self, history: ShorteningHistory, look: Look, offset: int, value: str) -> bool:
        if offset in look.values:
            return False
        key = key_of(value)
        is_superseded = any(
            at > offset and key_of(later) == key and history.sent_s[later] <= look.answered_s
            for at, later in history.acked[look.part].items()
        )
        is_back = any(at < offset and key_of(earlier) == key for at, earlier in look.values.items())
        return is_superseded or (is_tombstone(value) and not is_back)


class LogStartNeverGoesBack:
    """No leader tells a client of an earlier start than it has told before. (One that comes after it may: what retention has
    deleted on one replica another may have a moment longer. What was deleted for good is `DeletedIsGone`'s.)"""

    def check(self, history: ShorteningHistory) -> None:
        told: dict[tuple[Part, int], list[Begun]] = defaultdict(list)
        for begun in sorted(history.begun, key=lambda one: one.answered_s):
            before = told[begun.part, begun.epoch]
            known = [one for one in before if one.answered_s <= begun.asked_s and one.offset > begun.offset]
            if known:
                last = max(known, key=lambda one: one.offset)
                history.violate(
                    f"{begun.reader} was told at {begun.answered_s:.3f} s by {begun.host} that {begun.part} begins at "
                    f"{begun.offset}; at {last.answered_s:.3f} s it began at {last.offset} (epoch {begun.epoch})"
                )
            before.append(begun)


class DeletedIsGone:
    """Once somebody was told that records are deleted, no leader of that epoch or a later one serves them, or begins before."""

    def check(self, history: ShorteningHistory) -> None:
        reported: set[tuple[Part, int]] = set()  # by epoch: once is enough
        for deleted in history.deleted:
            told: list[tuple[Look | Begun, int]] = [
                *((look, min(look.values, default=deleted.offset)) for look in history.looks),
                *((begun, begun.offset) for begun in history.begun),
            ]
            for one, first in told:
                where = one.part, one.epoch
                if first < deleted.offset and where not in reported and _is_later(deleted, one):
                    reported.add(where)
                    history.violate(
                        f"{one.host} told {one.reader} at {one.answered_s:.3f} s (epoch {one.epoch}) of {Place(*one.part, first)}; "
                        f"{deleted.host} had said at {deleted.answered_s:.3f} s (epoch {deleted.epoch}) that all before "
                        f"{deleted.offset} is deleted"
                    )


def _is_later(deleted: Deleted, told: Look | Begun) -> bool:
    """Who does not know yet that there is a newer leader may hear from an older one what was before."""
    return deleted.part == told.part and deleted.answered_s <= told.asked_s and deleted.epoch <= told.epoch


class NewestOfEachKeyStays:
    """Of a compacted topic the newest record of each key is what every replica has at the end. A key that was deleted has no
    value any more: where the tombstone is gone, so is everything before it."""

    def check(self, history: ShorteningHistory) -> None:
        for part, final in history.final.items():
            if not history.is_compacted(part):
                continue
            newest: dict[str | None, int] = {}
            for offset, value in sorted(history.acked.get(part, {}).items()):
                newest[key_of(value)] = offset
            stores = {name: replica.values() for name, replica in final.replicas.items()}
            for name, store in {**stores, f"a client of {final.leader}": final.read}.items():
                for key, offset in newest.items():
                    self._check_key(history, Place(*part, offset), key, name, store)

    def _check_key(
        self, history: ShorteningHistory, place: Place, key: str | None, name: str, store: dict[int, str]
    ) -> None:
        value = history.acked[Part(place.topic, place.partition)][place.offset]
        if store.get(place.offset) == value:
            return
        left = {at: other for at, other in sorted(store.items()) if key_of(other) == key}
        if not is_tombstone(value) or left:
            history.violate(f"{place} is the newest of {key!r}, {value!r}; {name} has {left} instead")


class ReplicasAgree:
    """When all is over every replica ends where the leader ends, has no gaps, has taken over the leader's start or is past it, and
    has the same records as the others wherever both have them. Where nothing is compacted, batches are the same bytes."""

    def check(self, history: ShorteningHistory) -> None:
        for part, final in history.final.items():
            for name, replica in final.replicas.items():
                self._check_alone(history, part, final, name, replica)
            leading = final.replicas[final.leader]
            for name, replica in final.replicas.items():
                if name != final.leader:
                    self._compare(history, part, (final.leader, leading), (name, replica))

    def _check_alone(
        self, history: ShorteningHistory, part: Part, final: Final, name: str, replica: Replica
    ) -> None:
        if replica.end != final.end:
            history.violate(f"{part} ends at {final.end}, and on {name} at {replica.end}")
        if replica.log_start < final.log_start:
            history.violate(
                f"{part} begins at {final.log_start} on {final.leader}, and at {replica.log_start} on {name}"
            )
        for one, following in pairwise(replica.batches):
            if one.end != following.base_offset:
                history.violate(
                    f"{part} on {name} has nothing from {one.end} to {following.base_offset} (exclusive)"
                )
            if one.epoch > following.epoch:
                history.violate(
                    f"the epoch of {part} on {name} goes back from {one.epoch} at {following.base_offset}"
                )
        if replica.batches and replica.batches[0].base_offset > replica.log_start:
            history.violate(f"{part} on {name} begins at {replica.log_start} and has nothing there")

    def _compare(
        self, history: ShorteningHistory, part: Part, leader: tuple[str, Replica], other: tuple[str, Replica]
    ) -> None:
        (name, mine), (other_name, theirs) = leader, other
        start = max(mine.log_start, theirs.log_start)
        ours, others = _records(mine, start), _records(theirs, start)
        differing = sorted(offset for offset in ours.keys() & others if ours[offset] != others[offset])
        if differing:
            history.violate(f"{part} differs on {name} and {other_name} at {differing[:5]}")
        if history.is_compacted(part):
            return
        one, two = (
            {batch.base_offset: batch.data for batch in replica.batches if batch.end > start}
            for replica in (mine, theirs)
        )
        bases = sorted(base for base in one.keys() | two.keys() if one.get(base) != two.get(base))
        if bases:
            history.violate(f"{part} differs on {name} and {other_name} in the batches at {bases[:5]}")


def _records(replica: Replica, start: int) -> dict[int, StoredRecord]:
    return {
        record.offset: record
        for batch in replica.batches
        if not read_header(batch.data).is_control
        for record in decode_batch(batch.data, read_header(batch.data))
        if record.offset >= start
    }


CHECKERS_OF_ALL: tuple[ClusterChecker, ...] = (
    OneValuePerOffset(),
    OneLeaderPerEpoch(),
    AckedOnMinInSyncDisks(),
    ReadsStopAtHighWatermark(),
    HighWatermarkNeverGoesBack(),
    EpochsFence(),
    MetadataAgrees(),
)
SHORTENING_CHECKERS: tuple[ShorteningChecker, ...] = (
    OnlyWhatWasSent(),
    AckedIsRead(),
    LogStartNeverGoesBack(),
    DeletedIsGone(),
    NewestOfEachKeyStays(),
    ReplicasAgree(),
)
