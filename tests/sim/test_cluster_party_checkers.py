"""Each invariant of those who use a cluster beside plain producers and readers is seen to be broken where it is: groups, transactions,
queues, delayed messages, keyed topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goqueue.sim.cluster.delay_checkers import (
    DELAY_CHECKERS,
    CancelledIsNeverSeen,
    DelayChecker,
    FiresOnce,
    NeverBeforeDue,
    Seen,
    Sightings,
    StaysWhereItFired,
)
from goqueue.sim.cluster.group_checkers import MembersSettle, Ownership
from goqueue.sim.cluster.history import ClusterHistory
from goqueue.sim.cluster.keyed_checkers import EverythingIsProcessed, KeysInOrder, StoredOnce
from goqueue.sim.cluster.keyed_history import Growth, KeyedHistory, Way
from goqueue.sim.cluster.keyed_history import Place as KeyedPlace
from goqueue.sim.cluster.keyed_history import Sent as KeyedSent
from goqueue.sim.cluster.queue_checkers import CountsNeverRepeat, NackedComesAgainOrDies
from goqueue.sim.cluster.transaction_checkers import LastStableOffsetNeverGoesBack, NothingStaysOpen
from goqueue.sim.kafka.history import NEVER, Epoch, FinalLog, KafkaHistory, Outcome, Part, Read, Txn
from goqueue.sim.queue.history import (
    Action,
    Asked,
    Delivery,
    Fate,
    FinalRecord,
    Place,
    QueueHistory,
    Sent,
)

PART, OTHER = Part("in", 0), Part("in", 1)


class TrueTime:
    """A clock that began with the run."""

    def latest_ms(self, start_s: float, end_s: float) -> int:
        return int(end_s * 1_000)

    def earliest_ms(self, start_s: float, end_s: float) -> int:
        return int(start_s * 1_000)


# ---------------------------------------------------------------- transactions


def told(high_watermark: int, last_stable_offset: int, part: Part = PART) -> Read:
    return Read(
        "r",
        part,
        0,
        {},
        high_watermark,
        last_stable_offset,
        is_committed=False,
        sent_s=1.0,
        answered_s=1.1,
        cuts=0,
    )


@pytest.mark.parametrize(
    ("reads", "is_sound"),
    [
        ([told(5, 2), told(7, 7)], True),
        ([told(7, 7), told(5, 2), told(5, 2), told(7, 7)], True),
        ([told(7, 7), told(8, 2, OTHER)], True),
        ([told(7, 7), told(8, 2)], False),
        ([told(7, 7), told(7, 2)], False),
        ([told(7, 2), told(7, 7)], False),
    ],
    ids=["grows", "leader that knows less", "another partition", "goes back", "taken back", "told too early"],
)
def test_last_stable_offset_goes_with_what_is_committed(reads: list[Read], is_sound: bool) -> None:
    history = KafkaHistory(reads=reads)
    LastStableOffsetNeverGoesBack().check(history)
    assert len(history.violations) == (0 if is_sound else 1)


@pytest.mark.parametrize(("outcome", "is_sound"), [(Outcome.ABORTED, True), (Outcome.COMMITTED, False)])
def test_committed_readers_see_everything_that_counts(outcome: Outcome, is_sound: bool) -> None:
    history = KafkaHistory()
    history.send(["a"], PART, Txn("t", Epoch(1, 0), outcome=outcome))
    history.final[PART] = FinalLog(uncommitted={0: "a"})
    NothingStaysOpen().check(history)
    assert len(history.violations) == (0 if is_sound else 1)


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("before", "after", "is_sound"),
    [
        (("m1",), ("m1",), True),
        (("m1",), ("m2",), False),
        ((), (), False),
        (("m1", "m2"), ("m1", "m2"), False),
    ],
    ids=["settled", "moves on", "nobody", "two"],
)
def test_members_of_a_group_settle(before: tuple[str, ...], after: tuple[str, ...], is_sound: bool) -> None:
    history = KafkaHistory()
    MembersSettle([Ownership("g", {PART: before}, {PART: after}, 9.0)]).check(history)
    assert len(history.violations) == (0 if is_sound else 1)


# ---------------------------------------------------------------- queues


def given(count: int, at_s: float, *asked: Asked) -> Delivery:
    place = Place("jobs", 0, 5)
    return Delivery(
        "g", "1.0", f"m{count}", place, "a", None, 2, count, 0, 0, at_s, at_s + 0.1, "r", list(asked)
    )


NACK = Asked(Action.NACK, 2.0, 2.1, Fate.DONE)
LOST_NACK = replace(NACK, fate=Fate.UNKNOWN)


@pytest.mark.parametrize(
    ("deliveries", "is_sound"),
    [
        ([given(1, 1.0), given(3, 5.0)], True),
        ([given(1, 1.0), given(1, 5.0)], False),
        ([given(1, 5.0), given(2, 1.0)], False),
    ],
    ids=["one was lost", "twice", "before a smaller one"],
)
def test_counts_of_a_record_grow(deliveries: list[Delivery], is_sound: bool) -> None:
    history = QueueHistory(deliveries=deliveries)
    CountsNeverRepeat().check(history, TrueTime())
    assert len(history.violations) == (0 if is_sound else 1)


@pytest.mark.parametrize(
    ("deliveries", "is_sound"),
    [
        ([given(1, 1.0, NACK), given(2, 5.0)], True),
        ([given(2, 1.0, LOST_NACK), given(1, 5.0)], True),
        ([given(2, 1.0, NACK), given(1, 5.0)], False),
    ],
    ids=["counted", "nobody knows", "not counted"],
)
def test_record_that_was_given_back_comes_with_a_larger_count(
    deliveries: list[Delivery], is_sound: bool
) -> None:
    history = QueueHistory(deliveries=deliveries)
    NackedComesAgainOrDies().check(history, TrueTime())
    assert len(history.violations) == (0 if is_sound else 1)


# ---------------------------------------------------------------- delayed messages


def fired() -> Sightings:
    """One that was due after two seconds and is there since, and one that was cancelled."""
    history = QueueHistory()
    for value, cancel in (("a", None), ("b", Fate.DONE)):
        history.sent[value] = Sent(value, "later", None, 2, 2_000, True, Fate.DONE, None, cancel)
    history.final[Place("later", 0, 0)] = FinalRecord("a", None, {})
    return Sightings(history, TrueTime(), [Seen(Part("later", 0), 0, "a", 2.0)])


def too_early(sightings: Sightings) -> None:
    sightings.seen.append(sightings.seen[0]._replace(at_s=1.9))


def twice(sightings: Sightings) -> None:
    sightings.history.final[Place("later", 1, 0)] = FinalRecord("a", None, {})


def never(sightings: Sightings) -> None:
    sightings.history.final.clear()


def cancelled(sightings: Sightings) -> None:
    sightings.seen.append(sightings.seen[0]._replace(value="b"))


def unheard_of(sightings: Sightings) -> None:
    sightings.seen.append(sightings.seen[0]._replace(value="z"))


def elsewhere(sightings: Sightings) -> None:
    sightings.seen.append(sightings.seen[0]._replace(offset=1))


def test_sound_delays_are_sound_to_all() -> None:
    sightings = fired()
    for checker in DELAY_CHECKERS:
        checker.check(sightings)
    assert sightings.history.violations == []


@pytest.mark.parametrize(
    ("checker", "break_it"),
    [
        (NeverBeforeDue(), too_early),
        (FiresOnce(), twice),
        (FiresOnce(), never),
        (CancelledIsNeverSeen(), cancelled),
        (CancelledIsNeverSeen(), unheard_of),
        (StaysWhereItFired(), elsewhere),
    ],
)
def test_broken_delays_are_noticed(checker: DelayChecker, break_it: object) -> None:
    sightings = fired()
    assert callable(break_it)
    break_it(sightings)
    checker.check(sightings)
    assert len(sightings.history.violations) == 1


# ---------------------------------------------------------------- keyed topics

WAY = Way("p", 0, 2, known_s=0.2)
NEW_WAY = Way("p", 2, 3, known_s=NEVER)  # to a partition that came when the one of before knew the producer
SLOW_S = 5.0  # longer than a moment, and nobody's patience is over


def keyed(
    *processed: str, took_s: float = 0.1, wait_s: float = 0.01, way: Way = WAY, new_way: Way = WAY
) -> KeyedHistory:
    """Three records of a key: the second takes its time, and the third is sent so much later than it."""
    history = KeyedHistory(ClusterHistory(), growths=[Growth(0.8, 3)])
    for number, (queued_s, acked_s, its_way) in enumerate(
        [(0.1, 0.2, WAY), (1.0, 1.0 + took_s, way), (1.0 + wait_s, 1.1 + wait_s, new_way)]
    ):
        history.sent[f"k#{number}"] = KeyedSent("k", number, its_way, queued_s, acked_s)
    for offset, value in enumerate(processed):
        history.places[value] = {KeyedPlace(PART, offset): None}
        history.processed.setdefault("g", {})[value] = 9.0
    return history


@pytest.mark.parametrize(
    ("history", "is_sound"),
    [
        (keyed("k#0", "k#1", "k#2"), True),
        (keyed("k#2", "k#1", took_s=SLOW_S, wait_s=SLOW_S), False),
        (keyed("k#2", "k#1"), False),
        (keyed("k#2", "k#1", took_s=SLOW_S, new_way=NEW_WAY), False),
        (keyed("k#2", "k#1", took_s=SLOW_S, new_way=NEW_WAY, way=WAY._replace(known_s=NEVER)), True),
        (keyed("k#2", "k#1", took_s=99.0, new_way=NEW_WAY), True),
        (keyed("k#2", "k#1", way=NEW_WAY), True),
    ],
    ids=[
        "in order",
        "acknowledged before",
        "acknowledged within a moment",
        "late where it was known",
        "late where it was not known",
        "too late",
        "by a node that is behind",
    ],
)
def test_keys_are_processed_in_order(history: KeyedHistory, is_sound: bool) -> None:
    KeysInOrder().check(history)
    assert len(history.cluster.violations) == (0 if is_sound else 1)


def test_every_group_processes_everything_that_was_acknowledged() -> None:
    history = keyed("k#0", "k#1", "k#2")
    EverythingIsProcessed(["g"]).check(history)
    assert history.cluster.violations == []
    EverythingIsProcessed(["g", "h"]).check(history)
    assert len(history.cluster.violations) == 1


@pytest.mark.parametrize("value", ["k#1", "z#1"], ids=["twice", "nobody's"])
def test_record_of_a_keyed_topic_is_in_one_place(value: str) -> None:
    history = keyed("k#0", "k#1", "k#2")
    StoredOnce().check(history)
    assert history.cluster.violations == []
    history.see(value, KeyedPlace(OTHER, 7))
    StoredOnce().check(history)
    assert len(history.cluster.violations) == 1
