"""What must be true of every run of a cluster, whatever failed: one class per invariant. They look at the whole history."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Protocol

from goqueue.core.raft.messages import Entry
from goqueue.sim.cluster.history import ClusterHistory, Life
from goqueue.sim.history import Place
from goqueue.sim.kafka.history import Part


class ClusterChecker(Protocol):
    def check(self, history: ClusterHistory) -> None: ...


class NoLostWrites:
    """What was acknowledged is read at its offset when all is over, and every replica has it."""

    def check(self, history: ClusterHistory) -> None:
        for acked in history.acked:
            log = history.final.get(acked.part)
            if log is None:
                continue
            for offset, value in enumerate(acked.values, acked.base_offset):
                if log.read.get(offset) != value:
                    history.violate(
                        f"{Place(*acked.part, offset)} was acknowledged as {value!r} by {acked.host} at "
                        f"{acked.answered_s:.3f} s and is {log.read.get(offset)!r}"
                    )


class OneValuePerOffset:
    """Whoever reads an offset, from whatever node and whenever, reads the same."""

    def check(self, history: ClusterHistory) -> None:
        known: dict[tuple[Part, int], str] = {}
        for part, log in history.final.items():
            known |= {(part, offset): value for offset, value in log.read.items()}
        for read in history.reads:
            for offset, value in read.values.items():
                is_over = read.part in history.final
                before = (
                    known.get((read.part, offset))
                    if is_over
                    else known.setdefault((read.part, offset), value)
                )
                if before != value:
                    history.violate(
                        f"{read.reader} read {value!r} at {Place(*read.part, offset)} from {read.host} at "
                        f"{read.answered_s:.3f} s; elsewhere it is {before!r}"
                    )


class NoDuplicates:
    """However often a producer repeats a batch, it is stored once; and nothing is stored that nobody sent."""

    def check(self, history: ClusterHistory) -> None:
        counts = Counter(value for log in history.final.values() for value in log.read.values())
        for value, count in counts.items():
            if count > 1:
                history.violate(f"{value!r} is stored {count} times")
        for part, log in history.final.items():
            for offset, value in log.read.items():
                if history.sent.get(value) != part:
                    history.violate(f"{Place(*part, offset)} holds {value!r}, which nobody sent there")


class OneLeaderPerEpoch:
    """No two lives lead a partition in the same epoch, or the quorum in the same term."""

    def check(self, history: ClusterHistory) -> None:
        leaders: dict[tuple[Part, int], Life] = {}
        for led in history.led:
            first = leaders.setdefault((led.part, led.epoch), led.by)
            if first != led.by:
                history.violate(f"{first} and {led.by} lead {led.part} in epoch {led.epoch}")
        rulers: dict[int, Life] = {}
        for ruled in history.ruled:
            first = rulers.setdefault(ruled.term, ruled.by)
            if first != ruled.by:
                history.violate(f"{first} and {ruled.by} lead the quorum in term {ruled.term}")


class AckedOnMinInSyncDisks:
    """When a producer hears that a batch is stored, as many disks have it as the topic asks for."""

    def check(self, history: ClusterHistory) -> None:
        for acked in history.acked:
            if len(acked.holders) < acked.needed_count:
                history.violate(
                    f"{acked.values} were acknowledged by {acked.host} at {acked.answered_s:.3f} s as "
                    f"{Place(*acked.part, acked.base_offset)}, and only {list(acked.holders)} have them on disk"
                )


class ReadsStopAtHighWatermark:
    """Nobody reads past what the answer itself calls committed."""

    def check(self, history: ClusterHistory) -> None:
        for read in history.reads:
            last = max(read.values, default=-1)
            if last >= read.high_watermark:
                history.violate(
                    f"{read.reader} was served {Place(*read.part, last)} by {read.host} at {read.answered_s:.3f} s; "
                    f"the high watermark is {read.high_watermark}"
                )


class CommittedPrefixesEqual:
    """Below the high watermark the logs of all replicas are the same, byte for byte."""

    def check(self, history: ClusterHistory) -> None:
        for part, log in history.final.items():
            first, *others = log.replicas
            mine = {base: batch.data for base, batch in log.replicas[first].items()}
            for other in others:
                theirs = {base: batch.data for base, batch in log.replicas[other].items()}
                if mine != theirs:
                    bases = sorted(
                        base for base in mine.keys() | theirs.keys() if mine.get(base) != theirs.get(base)
                    )
                    history.violate(f"{part} differs on {first} and {other} in the batches at {bases[:5]}")
            values = {
                offset: value
                for batch in log.replicas[first].values()
                for offset, value in batch.values.items()
            }
            if values != log.read:
                history.violate(f"{part} is read as something else than what is on the disk of {first}")


class HighWatermarkNeverGoesBack:
    """The end of a partition, as leaders tell it to clients, only grows: no leader tells less than it or one before it has told
    or served. (Who does not know yet that there is a newer leader may hear less from an older one.)"""

    def check(self, history: ClusterHistory) -> None:
        ends: dict[Part, list[tuple[float, int, int]]] = defaultdict(list)  # when, in which epoch, what
        for read in history.reads:
            if read.values and read.epoch >= 0:
                ends[read.part].append((read.answered_s, read.epoch, max(read.values) + 1))
        for latest in sorted(history.latest, key=lambda one: one.answered_s):
            before = [
                end
                for at_s, epoch, end in ends[latest.part]
                if at_s <= latest.asked_s and epoch <= latest.epoch
            ]
            if before and latest.offset < max(before):
                history.violate(
                    f"{latest.reader} was told at {latest.answered_s:.3f} s that {latest.part} ends at {latest.offset}; it "
                    f"had ended at {max(before)} before"
                )
            ends[latest.part].append((latest.answered_s, latest.epoch, latest.offset))


class EpochsFence:
    """Once a leader has acknowledged something, no earlier one takes anything any more; and epochs grow along the log."""

    def check(self, history: ClusterHistory) -> None:
        for part, log in history.final.items():
            epochs = [batch.epoch for _, batch in sorted(next(iter(log.replicas.values()), {}).items())]
            if epochs != sorted(epochs):
                history.violate(f"the epochs of {part} go back: {epochs}")
        heard: dict[Part, list[tuple[float, int]]] = defaultdict(
            list
        )  # when an epoch is known to have been in force
        for acked in sorted(history.acked, key=lambda one: one.answered_s):
            epoch = self._epoch_of(history, acked.part, acked.host, acked.answered_s)
            newer = [each for at_s, each in heard[acked.part] if at_s < acked.sent_s and each > epoch]
            if newer:
                history.violate(
                    f"{acked.host} acknowledged {acked.values} at {acked.answered_s:.3f} s as leader of {acked.part} in "
                    f"epoch {epoch}, when epoch {max(newer)} was in force"
                )
            heard[acked.part].append(
                (acked.answered_s, self._epoch_of(history, acked.part, acked.host, acked.sent_s))
            )

    def _epoch_of(self, history: ClusterHistory, part: Part, host: str, at_s: float) -> int:
        """The newest in which a host may have acknowledged something by then."""
        return max(
            (
                led.epoch
                for led in history.led
                if led.part == part and led.by.host == host and led.at_s <= at_s
            ),
            default=-1,
        )


class MetadataAgrees:
    """Every node applies the same at the same index of the metadata."""

    def check(self, history: ClusterHistory) -> None:
        known: dict[int, tuple[Entry, Life]] = {}
        for applied in history.applied:
            entry, by = known.setdefault(applied.entry.index, (applied.entry, applied.by))
            if entry != applied.entry:
                history.violate(
                    f"at index {entry.index} {by} applied {_shown(entry)} and {applied.by} {_shown(applied.entry)}"
                )


CLUSTER_CHECKERS: tuple[ClusterChecker, ...] = (
    NoLostWrites(),
    OneValuePerOffset(),
    NoDuplicates(),
    OneLeaderPerEpoch(),
    AckedOnMinInSyncDisks(),
    ReadsStopAtHighWatermark(),
    CommittedPrefixesEqual(),
    HighWatermarkNeverGoesBack(),
    EpochsFence(),
    MetadataAgrees(),
)


def _shown(entry: Entry) -> str:
    return f"{entry.kind} of term {entry.term}: {entry.payload[:200]!r}"
