"""Each invariant of a cluster is seen to be broken where it is."""

from __future__ import annotations

import pytest
from msgspec import structs

from goqueue.core.raft.messages import Entry, EntryKind
from goqueue.sim.cluster.checkers import (
    CLUSTER_CHECKERS,
    AckedOnMinInSyncDisks,
    ClusterChecker,
    CommittedPrefixesEqual,
    EpochsFence,
    HighWatermarkNeverGoesBack,
    MetadataAgrees,
    NoDuplicates,
    NoLostWrites,
    OneLeaderPerEpoch,
    OneValuePerOffset,
    ReadsStopAtHighWatermark,
)
from goqueue.sim.cluster.history import (
    Acked,
    Applied,
    ClusterHistory,
    FinalBatch,
    FinalLog,
    Latest,
    Led,
    Life,
    Read,
    Ruled,
)
from goqueue.sim.kafka.history import Part

PART = Part("orders", 0)
ONE, TWO = Life("node-1", 1), Life("node-2", 1)
ENTRY = Entry(1, 1, EntryKind.COMMAND, b"x")


def sound() -> ClusterHistory:
    """A producer, a reader, and a leader that gave way to another."""
    history = ClusterHistory(sent={"a": PART, "b": PART})
    history.led += [Led(PART, 0, ONE, 0.0), Led(PART, 1, TWO, 5.0)]
    history.ruled += [Ruled(1, ONE, 0.0), Ruled(2, TWO, 4.0)]
    history.applied += [Applied(ENTRY, ONE), Applied(ENTRY, TWO)]
    history.acked += [
        Acked(PART, 0, ("a",), "node-1", ("node-1", "node-2"), 2, 1.0, 2.0),
        Acked(PART, 1, ("b",), "node-2", ("node-2", "node-3"), 2, 6.0, 7.0),
    ]
    history.reads += [Read("r", "node-1", PART, 0, {0: "a"}, 1, 3.0, 0)]
    history.latest += [Latest("r", PART, 1, 0, 3.0, 3.5), Latest("r", PART, 2, 1, 8.0, 8.5)]
    batches = {0: FinalBatch(0, b"A", {0: "a"}), 1: FinalBatch(1, b"B", {1: "b"})}
    history.final[PART] = FinalLog(2, {"node-1": batches, "node-2": dict(batches)}, {0: "a", 1: "b"})
    return history


def test_sound_history_is_sound_to_all() -> None:
    history = sound()
    for checker in CLUSTER_CHECKERS:
        checker.check(history)
    assert history.violations == []


def lost(history: ClusterHistory) -> None:
    del history.final[PART].read[1]


def another_value(history: ClusterHistory) -> None:
    history.reads.append(Read("r", "node-3", PART, 1, {1: "z"}, 2, 7.5))


def stored_twice(history: ClusterHistory) -> None:
    history.final[PART].read[2] = "a"


def sent_by_nobody(history: ClusterHistory) -> None:
    del history.sent["b"]


def two_leaders(history: ClusterHistory) -> None:
    history.led.append(Led(PART, 1, ONE, 6.0))


def two_rulers(history: ClusterHistory) -> None:
    history.ruled.append(Ruled(2, Life("node-2", 2), 6.0))


def too_few_disks(history: ClusterHistory) -> None:
    history.acked.append(Acked(PART, 1, ("b",), "node-2", ("node-2",), 2, 6.0, 7.0))


def read_too_far(history: ClusterHistory) -> None:
    history.reads.append(Read("r", "node-2", PART, 0, {0: "a", 1: "b"}, 1, 7.0, 1))


def replicas_differ(history: ClusterHistory) -> None:
    history.final[PART].replicas["node-2"][1] = FinalBatch(0, b"C", {1: "b"})


def read_otherwise(history: ClusterHistory) -> None:
    history.final[PART].read[1] = "z"


def end_goes_back(history: ClusterHistory) -> None:
    history.latest.append(Latest("s", PART, 1, 1, 9.0, 9.5))


def served_beyond_the_end(history: ClusterHistory) -> None:
    history.reads.append(Read("s", "node-2", PART, 0, {0: "a", 1: "b", 2: "c"}, 3, 7.9, 1))


def epochs_go_back(history: ClusterHistory) -> None:
    history.final[PART].replicas["node-1"][0] = FinalBatch(2, b"A", {0: "a"})


def zombie_acks(history: ClusterHistory) -> None:
    history.acked.append(Acked(PART, 2, ("c",), "node-1", ("node-1", "node-3"), 2, 8.0, 9.0))


def nodes_disagree(history: ClusterHistory) -> None:
    history.applied.append(Applied(structs.replace(ENTRY, term=2), Life("node-3", 1)))


@pytest.mark.parametrize(
    ("checker", "break_it"),
    [
        (NoLostWrites(), lost),
        (OneValuePerOffset(), another_value),
        (NoDuplicates(), stored_twice),
        (NoDuplicates(), sent_by_nobody),
        (OneLeaderPerEpoch(), two_leaders),
        (OneLeaderPerEpoch(), two_rulers),
        (AckedOnMinInSyncDisks(), too_few_disks),
        (ReadsStopAtHighWatermark(), read_too_far),
        (CommittedPrefixesEqual(), replicas_differ),
        (CommittedPrefixesEqual(), read_otherwise),
        (HighWatermarkNeverGoesBack(), end_goes_back),
        (HighWatermarkNeverGoesBack(), served_beyond_the_end),
        (EpochsFence(), zombie_acks),
        (EpochsFence(), epochs_go_back),
        (MetadataAgrees(), nodes_disagree),
    ],
)
def test_broken_history_is_noticed(checker: ClusterChecker, break_it: object) -> None:
    history = sound()
    assert callable(break_it)
    break_it(history)
    checker.check(history)
    assert len(history.violations) == 1


def test_older_leader_may_tell_an_older_end() -> None:
    history = sound()
    history.latest.append(Latest("s", PART, 1, 0, 9.0, 9.5))
    HighWatermarkNeverGoesBack().check(history)
    assert history.violations == []
