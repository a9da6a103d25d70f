"""What must be true of a run of Kafka clients, one class per invariant. They look at the whole history when it is over."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from goqueue.sim.history import Place
from goqueue.sim.kafka.history import NEVER, KafkaHistory, Outcome, Part


class KafkaChecker(Protocol):
    def check(self, history: KafkaHistory) -> None: ...


class OnlyCommittedIsSeen:
    """No reader of committed records ever sees one of a transaction that is open, aborted or will never be committed."""

    def check(self, history: KafkaHistory) -> None:
        for read in history.reads:
            if not read.is_committed:
                continue
            for offset, value in read.values.items():
                txn = history.txn_of.get(value)
                if txn is not None and not txn.may_count(read.answered_s):
                    history.violate(
                        f"{read.reader} saw {value!r} at {Place(*read.part, offset)}, {read.answered_s:.3f} s, though its "
                        f"transaction {txn.name} is {txn.outcome.value}, commit asked at {txn.commit_asked_s:.3f} s"
                    )


class TransactionsAreWhole:
    """A transaction counts in all its partitions or in none; it counts if that was acknowledged or anybody saw it; and
    what was never asked to count does not."""

    def check(self, history: KafkaHistory) -> None:
        visible = {value for log in history.final.values() for value in log.committed.values()}
        seen = {value for read in history.reads if read.is_committed for value in read.values.values()}
        for txn in history.txns:
            missing = [value for value in txn.values if value not in visible]
            if missing and len(missing) < len(txn.values):
                history.violate(
                    f"transaction {txn.name} is torn: {missing} of {list(txn.values)} are missing"
                )
            elif missing and txn.outcome is Outcome.COMMITTED:
                history.violate(f"transaction {txn.name} was committed at {txn.answered_s:.3f} s and is lost")
            elif missing and not seen.isdisjoint(txn.values):
                history.violate(f"transaction {txn.name} was seen as committed and is lost")
            elif txn.values and not missing and not txn.may_count(NEVER):
                history.violate(f"transaction {txn.name} counts, but is {txn.outcome.value} to its producer")
            elif txn.values and not missing and txn.commit_asked_s == NEVER:
                history.violate(f"transaction {txn.name} counts and nobody asked for that")


class AcknowledgedWritesSurvive:
    """What was acknowledged stands where it was said to stand, with `all`, whatever failed."""

    def check(self, history: KafkaHistory) -> None:
        for write in history.writes:
            log = history.final[write.part].uncommitted
            for offset, value in enumerate(write.values, write.base_offset):
                if log.get(offset) != value:
                    history.violate(
                        f"{Place(*write.part, offset)} was acknowledged as {value!r} and is {log.get(offset)!r}"
                    )


class StoredOnce:
    """However often a producer repeats a batch, it is stored once; and nothing is stored that nobody sent."""

    def check(self, history: KafkaHistory) -> None:
        counts = Counter(value for log in history.final.values() for value in log.uncommitted.values())
        for value, count in counts.items():
            if count > 1:
                history.violate(f"{value!r} is stored {count} times")
        for part, log in history.final.items():
            for offset, value in log.uncommitted.items():
                if history.sent.get(value) != part:
                    history.violate(f"{Place(*part, offset)} holds {value!r}, which nobody sent there")


class ReadsStayBelowTheirEnd:
    """Nobody reads past the high watermark, readers of committed records not past the last stable offset."""

    def check(self, history: KafkaHistory) -> None:
        for read in history.reads:
            end = read.last_stable_offset if read.is_committed else read.high_watermark
            last = max(read.values, default=-1)
            if last >= end or read.last_stable_offset > read.high_watermark:
                history.violate(
                    f"{read.reader} was served {Place(*read.part, last)}; last stable {read.last_stable_offset}, "
                    f"high watermark {read.high_watermark}"
                )


class EndsNeverGoBack:
    """High watermark and last stable offset only grow, but for what a power cut took."""

    def check(self, history: KafkaHistory) -> None:
        last: dict[tuple[str, Part], tuple[int, int, int]] = {}
        for read in history.reads:
            key = (read.reader, read.part)
            cuts, high, stable = last.get(key, (-1, 0, 0))
            if read.cuts < 0:
                continue
            if read.cuts == cuts and (read.high_watermark < high or read.last_stable_offset < stable):
                history.violate(
                    f"{read.reader} on {read.part} at {read.answered_s:.3f} s: high watermark {high} to "
                    f"{read.high_watermark}, last stable {stable} to {read.last_stable_offset}"
                )
            last[key] = (read.cuts, read.high_watermark, read.last_stable_offset)


class OneValuePerOffset:
    """Between two power cuts everybody reads the same at an offset, and committed readers never skip what counts."""

    def check(self, history: KafkaHistory) -> None:
        known: dict[tuple[int, Part, int], str] = {}
        for read in history.reads:
            for offset, value in read.values.items():
                before = known.setdefault((read.cuts, read.part, offset), value)
                if before != value and read.cuts >= 0:
                    history.violate(f"{Place(*read.part, offset)} was {before!r} and is {value!r}")
        for part, log in history.final.items():
            for offset, value in log.uncommitted.items():
                if value not in history.txn_of and log.committed.get(offset) != value:
                    history.violate(f"{Place(*part, offset)} {value!r} is kept from committed readers")


class FencedProducersAreRefused:
    """Once an epoch of a producer was given out, nothing that an older one sends is taken."""

    def check(self, history: KafkaHistory) -> None:
        for given in history.epochs:
            for write in history.writes:
                if _is_older(write.producer, given.producer) and write.sent_s > given.at_s:
                    history.violate(f"{write} was taken after {given}")
            for txn in history.txns:
                is_late = (
                    _is_older(txn.producer, given.producer)
                    and txn.answered_s > txn.commit_asked_s > given.at_s
                )
                if is_late and txn.outcome is Outcome.COMMITTED:
                    history.violate(f"{txn.name} of {txn.producer} was committed after {given}")
            for commit in history.commits.values():
                is_taken = commit.answered_s < NEVER and not commit.is_refused
                if commit.producer is None or not is_taken or commit.sent_s <= given.at_s:
                    continue
                if _is_older(commit.producer, given.producer):
                    history.violate(f"{commit} was taken after {given}")


def _is_older(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[1]


KAFKA_CHECKERS: tuple[KafkaChecker, ...] = (
    OnlyCommittedIsSeen(),
    TransactionsAreWhole(),
    AcknowledgedWritesSurvive(),
    StoredOnce(),
    ReadsStayBelowTheirEnd(),
    EndsNeverGoBack(),
    OneValuePerOffset(),
    FencedProducersAreRefused(),
)
