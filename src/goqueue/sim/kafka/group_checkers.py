"""What must be true of groups: their offsets, their owners, and what comes out of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

from goqueue.sim.kafka.checkers import KafkaChecker
from goqueue.sim.kafka.history import (
    NEVER,
    Hold,
    KafkaHistory,
    OffsetCommit,
    OffsetRead,
    Outcome,
    Part,
    Told,
)
from goqueue.sim.kafka.workers import DERIVED


class CommittedOffsetsHold:
    """Whoever asks how far a group has come is told of a commit that counts, and of none that was replaced by a later
    one before the question. Every commit has an interval in which it took effect: from when it was sent until its answer,
    or until somebody was told of it; within that, commits of different members may come in any order."""

    def check(self, history: KafkaHistory) -> None:
        commits: dict[tuple[str, Part], list[OffsetCommit]] = defaultdict(list)
        for commit in history.commits.values():
            commits[commit.group, commit.part].append(commit)
        settled_s = {id: _settled_s(commit) for id, commit in history.commits.items()}
        for read in sorted(history.offset_reads, key=lambda read: read.answered_s):
            self._check(history, read, commits[read.group, read.part], settled_s)

    def _check(
        self,
        history: KafkaHistory,
        read: OffsetRead,
        rivals: list[OffsetCommit],
        settled_s: dict[str, float],
    ) -> None:
        before_s = 0.0
        if read.commit_id:
            commit = history.commits.get(read.commit_id)
            if commit is None or (commit.group, commit.part, commit.offset) != (
                read.group,
                read.part,
                read.offset,
            ):
                history.violate(f"{read} is no commit that anybody made")
                return
            if not _may_count(commit, read.answered_s):
                history.violate(f"{read} is of {commit}, which does not count")
                return
            before_s = settled_s[commit.id] = min(settled_s[commit.id], read.answered_s)
        for rival in rivals:
            is_later = not read.commit_id or rival.sent_s > before_s
            if rival.id != read.commit_id and is_later and settled_s[rival.id] < read.sent_s:
                history.violate(f"{read} was told, but {rival} came later")
                return


def _settled_s(commit: OffsetCommit) -> float:
    if commit.is_refused:
        return NEVER
    if commit.txn is None:
        return commit.answered_s
    return commit.txn.answered_s if commit.txn.outcome is Outcome.COMMITTED else NEVER


def _may_count(commit: OffsetCommit, at_s: float) -> bool:
    if commit.sent_s > at_s:
        return False
    if commit.txn is not None:
        return commit.txn.may_count(at_s)
    return not commit.is_refused


class ZombiesAreRefused:
    """A member's commit is not taken once another member owns the partition, or was given its share of a later
    generation."""

    def check(self, history: KafkaHistory) -> None:
        holds: dict[tuple[str, Part], list[Hold]] = defaultdict(list)
        generations: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for hold in history.holds:
            holds[hold.group, hold.part].append(hold)
            if hold.is_classic:
                generations[hold.group].append((hold.start_s, hold.generation))
        for commit in history.commits.values():
            if commit.is_refused or commit.answered_s == NEVER:
                continue
            owners = [hold for hold in holds[commit.group, commit.part] if hold.start_s < commit.sent_s]
            # By generation, not by time: the news of an older one may have come later.
            owner = max(owners, key=lambda hold: (hold.generation, hold.start_s), default=None)
            if owner is not None and owner.member_id != commit.member_id:
                history.violate(f"{commit} was taken, but {owner}")
            newest = max(
                (generation for at_s, generation in generations[commit.group] if at_s < commit.sent_s),
                default=-1,
            )
            if newest > commit.generation:
                history.violate(f"{commit} was taken in generation {newest}")


class OneOwner:
    """Of a classic group one member has a partition in a generation. In KIP-848's, whoever is given a partition is its only
    owner: if two believe to have it, one of them is not a member any more and hears so at its next heartbeat."""

    def check(self, history: KafkaHistory) -> None:
        beats: dict[tuple[str, str], list[float]] = defaultdict(list)
        for beat in history.beats:
            beats[beat.group, beat.member_id].append(beat.sent_s)
        holds: dict[tuple[str, Part], list[Hold]] = defaultdict(list)
        for hold in history.holds:
            holds[hold.group, hold.part].append(hold)
        for rivals in holds.values():
            for one, other in combinations(rivals, 2):
                if one.member_id == other.member_id:
                    continue
                if one.is_classic:
                    is_shared = one.generation == other.generation
                else:
                    start_s = max(one.start_s, other.start_s)
                    is_shared = all(
                        any(start_s < at_s < hold.end_s for at_s in beats[hold.group, hold.member_id])
                        for hold in (one, other)
                    )
                if is_shared:
                    history.violate(f"two owners: {one} and {other}")


class OnlyMovedPause:
    """A member of KIP-848's group gives up what another is to have, and reads the rest on. What it has in one epoch and in the next is
    its own in both assignments, so nothing may take it away in between, whatever fails. (Over more epochs it may have been
    another's.)"""

    def check(self, history: KafkaHistory) -> None:
        stints: dict[tuple[str, str, int], list[Told]] = defaultdict(list)
        for told in history.told:
            stints[told.group, told.member_id, told.stint].append(told)
        for stint in stints.values():
            last_with: dict[Part, Told] = {}
            before: tuple[Part, ...] = ()
            for told in stint:
                for part in told.parts:
                    had = last_with.get(part)
                    if part not in before and had is not None and told.epoch <= had.epoch + 1:
                        history.violate(f"{part} had to pause though it did not move: {had}, then {told}")
                    last_with[part] = told
                before = told.parts


class ExactlyOnce:
    """What the transforming group made of its input is there once for each, and nothing else is."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target

    def check(self, history: KafkaHistory) -> None:
        wanted = _committed_values(history, self._source)
        made = Counter(value.partition(DERIVED)[2] for value in _committed_values(history, self._target))
        for value in wanted:
            if made[value] != 1:
                history.violate(f"{value!r} was transformed {made[value]} times")
        for value in made:
            if value not in wanted:
                history.violate(f"{value!r} was transformed and is not in {self._source}")


class NothingIsSkipped:
    """A group that commits what it has processed has processed everything."""

    def __init__(self, group: str, source: str) -> None:
        self._group = group
        self._source = source

    def check(self, history: KafkaHistory) -> None:
        processed = history.processed.get(self._group, set())
        for value in _committed_values(history, self._source):
            if value not in processed:
                history.violate(f"{value!r} of {self._source} was skipped by {self._group}")


def _committed_values(history: KafkaHistory, topic: str) -> dict[str, None]:
    return dict.fromkeys(
        value
        for part, log in history.final.items()
        if part.topic == topic
        for value in log.committed.values()
    )


def group_checkers(
    *, transforming_source: str, transforming_target: str, consuming: str, consuming_source: str
) -> tuple[KafkaChecker, ...]:
    return (
        CommittedOffsetsHold(),
        ZombiesAreRefused(),
        OneOwner(),
        OnlyMovedPause(),
        ExactlyOnce(transforming_source, transforming_target),
        NothingIsSkipped(consuming, consuming_source),
    )
