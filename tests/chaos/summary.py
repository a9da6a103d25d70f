"""What a run was: how long, what was broken, what was done, how long nothing worked, and what was found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from tests.chaos.checkers import Found
from tests.chaos.history import Event, History, Op, Phase

_NOTES_MAX: Final = 5
_PROGRESS: Final = (Op.PUBLISH, Op.POLL, Op.TAKE, Op.COMMIT, Op.TRANSACT, Op.ACK)


class Gap(NamedTuple):
    """Between the last success before something and the first one after it."""

    from_us: int
    until_us: int
    fault: str = ""

    @property
    def ms(self) -> int:
        return (self.until_us - self.from_us) // 1_000


def describe(history: History, found: Mapping[str, Found]) -> str:
    return "\n".join(
        [
            *_span(history),
            "",
            "faults: " + (_counts(_faults(history)) or "none"),
            "",
            *_operations(history),
            "",
            *_unavailable(history),
            "",
            *_notes(history),
            *_anomalies(found),
        ]
    )


def _span(history: History) -> Iterator[str]:
    seconds = (history[-1].at_us - history[0].at_us) / 1e6 if history else 0.0
    published = [one for one in history if one.op is Op.PUBLISH]
    acked = sum(one.phase is Phase.OK for one in published)
    sent = sum(one.phase is Phase.INVOKE for one in published)
    read = sum(len(one.places) for one in history if one.op in (Op.POLL, Op.TAKE))
    kept = sum(len(one.places) for one in history if one.op is Op.FINAL)
    yield f"{seconds:.0f} s, {len(history)} events; {sent} published, {acked} acknowledged, {read} given, {kept} there at the end"


def _faults(history: History) -> Counter[str]:
    return Counter(one.process for one in history if one.op is Op.FAULT and one.phase is Phase.INVOKE)


def _operations(history: History) -> Iterator[str]:
    rows: dict[tuple[str, str], Counter[Phase]] = defaultdict(Counter)
    for event in history:
        if event.op not in (Op.FAULT, Op.FINAL, Op.OPEN, Op.WORK, Op.DRAIN):
            rows[event.load, event.op][event.phase] += 1
    yield f"{'load':16} {'operation':10} {'begun':>8} {'ok':>8} {'failed':>8} {'unknown':>8}"
    for (load, op), counts in sorted(rows.items()):
        numbers = (counts[one] for one in (Phase.INVOKE, Phase.OK, Phase.FAIL, Phase.UNKNOWN))
        yield f"{load:16} {op:10} " + " ".join(f"{number:8}" for number in numbers)


# -------------------------------------------------------------------- unavailability


def _unavailable(history: History) -> Iterator[str]:
    yield "longest time without a success around a fault, of one partition:"
    for (load, op), gaps in sorted(unavailability(history).items()):
        ordered = sorted(gap.ms for gap in gaps)
        p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99))
        yield f"  {load:16} {op:10} max {ordered[-1]:6} ms  p99 {p99:6} ms  median {p50:6} ms"
        longest: dict[str, int] = {}
        for gap in gaps:
            longest[gap.fault] = max(gap.ms, longest.get(gap.fault, 0))
        yield f"  {'':27} " + ", ".join(f"{fault} {ms}" for fault, ms in sorted(longest.items()))


def unavailability(history: History) -> dict[tuple[str, Op], list[Gap]]:
    """For each fault and each partition, the longest gap that reaches into the time from its begin to the next one's."""
    begins = [one for one in history if one.op is Op.FAULT and one.phase is Phase.INVOKE]
    if not begins:
        return {}
    windows = list(pairwise([*begins, history[-1]]))
    found: dict[tuple[str, Op], list[Gap]] = defaultdict(list)
    for (load, op, _), times in _successes(history).items():
        gaps = [Gap(*pair) for pair in pairwise(times)]
        for begin, end in windows:
            around = [gap for gap in gaps if gap.from_us < end.at_us and gap.until_us > begin.at_us]
            if around:
                longest = max(around, key=lambda gap: gap.ms)
                found[load, op].append(longest._replace(fault=begin.process))
    return found


def _successes(history: History) -> dict[tuple[str, Op, object], list[int]]:
    """By load, operation and partition."""
    times: dict[tuple[str, Op, object], list[int]] = defaultdict(list)
    for event in history:
        if event.op in _PROGRESS and event.phase is Phase.OK:
            for partition in _partitions(event):
                # Whoever reads what is old goes on while nothing new comes: readers are told apart.
                reader = event.process if event.op is Op.POLL and not event.group else ""
                times[event.load, event.op, (event.topic, partition, reader)].append(event.at_us)
    return times


def _partitions(event: Event) -> Iterable[int]:
    if event.op is Op.PUBLISH and event.partition >= 0:
        return (event.partition,)
    return {place.partition for place in event.places} if event.op in (Op.POLL, Op.TAKE) else (-1,)


# -------------------------------------------------------------------- words


def _notes(history: History) -> Iterator[str]:
    """What clients were told when it did not work, the most frequent first."""
    notes: dict[str, Counter[str]] = defaultdict(Counter)
    for event in history:
        if event.note and event.phase in (Phase.FAIL, Phase.UNKNOWN) and event.op not in (Op.WORK, Op.DRAIN):
            notes[f"{event.load} {event.op}"][event.note] += 1
    for what, counts in sorted(notes.items()):
        yield f"{what}:"
        yield from (f"  {count:6} {note}" for note, count in counts.most_common(_NOTES_MAX))
    if notes:
        yield ""


def _anomalies(found: Mapping[str, Found]) -> Iterator[str]:
    yield "anomalies: " + _counts({name: one.count for name, one in found.items()})
    for name, one in found.items():
        yield from (f"  {name}: {sentence}" for sentence in one.evidence)
        if one.count > len(one.evidence):
            yield f"  {name}: and {one.count - len(one.evidence)} more"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
