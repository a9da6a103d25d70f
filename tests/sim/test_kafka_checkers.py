"""Each checker of the Kafka workload says nothing about a sound history and something about a broken one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goqueue.sim.kafka.checkers import (
    AcknowledgedWritesSurvive,
    EndsNeverGoBack,
    FencedProducersAreRefused,
    KafkaChecker,
    OneValuePerOffset,
    OnlyCommittedIsSeen,
    ReadsStayBelowTheirEnd,
    StoredOnce,
    TransactionsAreWhole,
)
from goqueue.sim.kafka.group_checkers import (
    CommittedOffsetsHold,
    ExactlyOnce,
    NothingIsSkipped,
    OneOwner,
    OnlyMovedPause,
    ZombiesAreRefused,
)
from goqueue.sim.kafka.history import (
    Beat,
    Epoch,
    EpochGiven,
    FinalLog,
    Hold,
    KafkaHistory,
    OffsetCommit,
    OffsetRead,
    Outcome,
    Part,
    Read,
    Told,
    Txn,
    Write,
)

PART, OTHER = Part("in", 0), Part("in", 1)
OLD, NEW = Epoch(1, 0), Epoch(1, 1)
READ = Read("r", PART, 0, {0: "a"}, 3, 3, is_committed=True, sent_s=5.0, answered_s=5.1, cuts=0)
COMMIT = OffsetCommit("c1", "g", PART, 7, "m1", 1, sent_s=1.0, answered_s=1.1)
TOLD = Told("g", "m1", 0, 5, (PART, OTHER), 1.0)
HOLD = Hold("g", PART, "m1", 1, start_s=1.0, is_classic=False)


def history(*txns: Txn) -> KafkaHistory:
    """Of transactions whose values all stand in `in`, each seen by nobody yet."""
    made = KafkaHistory()
    for txn in txns:
        made.txns.append(txn)
        for value, part in dict(txn.values).items():
            made.send([value], part, txn)
            log = made.final.setdefault(part, FinalLog())
            log.uncommitted[len(log.uncommitted)] = value
            if txn.outcome is Outcome.COMMITTED:
                log.committed[len(log.uncommitted) - 1] = value
    return made


def committed(name: str = "t", **values: Part) -> Txn:
    return Txn(name, OLD, values, commit_asked_s=1.0, answered_s=2.0, outcome=Outcome.COMMITTED)


def problems(checker: KafkaChecker, facts: KafkaHistory) -> list[str]:
    checker.check(facts)
    return facts.violations


def test_committed_reader_may_see_what_was_asked_to_count_and_nothing_else() -> None:
    facts = history(committed(a=PART))
    facts.reads.append(READ)
    assert not problems(OnlyCommittedIsSeen(), facts)
    facts.reads.append(replace(READ, answered_s=0.5))
    assert problems(OnlyCommittedIsSeen(), facts)


def test_record_of_an_aborted_transaction_is_not_for_committed_readers() -> None:
    facts = history(Txn("t", OLD, {"a": PART}, outcome=Outcome.ABORTED))
    facts.reads.append(replace(READ, is_committed=False))
    assert not problems(OnlyCommittedIsSeen(), facts)
    facts.reads.append(READ)
    assert problems(OnlyCommittedIsSeen(), facts)


def test_transaction_is_all_there_or_not_at_all() -> None:
    facts = history(committed(a=PART, b=OTHER))
    assert not problems(TransactionsAreWhole(), facts)
    del facts.final[OTHER].committed[0]
    assert "torn" in problems(TransactionsAreWhole(), facts)[0]


def test_committed_transaction_is_not_lost() -> None:
    facts = history(committed(a=PART))
    facts.final[PART].committed.clear()
    assert "lost" in problems(TransactionsAreWhole(), facts)[0]


def test_transaction_that_was_seen_is_not_lost() -> None:
    txn = replace(committed(a=PART), outcome=Outcome.UNKNOWN)
    facts = history(txn)
    assert not problems(TransactionsAreWhole(), facts)
    facts.reads.append(READ)
    assert "lost" in problems(TransactionsAreWhole(), facts)[0]


def test_transaction_counts_only_if_somebody_asked() -> None:
    facts = history(Txn("t", OLD, {"a": PART}))
    facts.final[PART].committed[0] = "a"
    assert problems(TransactionsAreWhole(), facts)


def test_acknowledged_write_stands_where_it_was_said_to() -> None:
    facts = history(committed(a=PART))
    facts.writes.append(Write(PART, 0, ("a",), OLD, 0.0, 0.1))
    assert not problems(AcknowledgedWritesSurvive(), facts)
    facts.writes.append(Write(PART, 1, ("b",), OLD, 0.0, 0.1))
    assert problems(AcknowledgedWritesSurvive(), facts)


def test_value_is_stored_once_and_only_where_it_was_sent() -> None:
    facts = history(committed(a=PART))
    assert not problems(StoredOnce(), facts)
    facts.final[PART].uncommitted[9] = "a"
    assert problems(StoredOnce(), facts)


def test_reads_end_before_their_bound() -> None:
    facts = history()
    facts.reads.append(READ)
    assert not problems(ReadsStayBelowTheirEnd(), facts)
    facts.reads.append(replace(READ, values={3: "d"}))
    assert problems(ReadsStayBelowTheirEnd(), facts)


def test_ends_go_back_only_with_the_power() -> None:
    facts = history()
    facts.reads += [READ, replace(READ, high_watermark=2, last_stable_offset=2, cuts=1)]
    assert not problems(EndsNeverGoBack(), facts)
    facts.reads.append(replace(READ, high_watermark=2, last_stable_offset=1, cuts=1))
    assert problems(EndsNeverGoBack(), facts)


def test_two_readers_read_the_same() -> None:
    facts = history()
    facts.reads += [READ, replace(READ, values={0: "b"}, cuts=1)]
    assert not problems(OneValuePerOffset(), facts)
    facts.reads.append(replace(READ, values={0: "b"}))
    assert problems(OneValuePerOffset(), facts)


def test_nothing_of_a_fenced_producer_is_taken() -> None:
    facts = history()
    facts.epochs.append(EpochGiven(NEW, 1.0))
    facts.writes.append(Write(PART, 0, ("a",), OLD, 0.9, 1.5))
    assert not problems(FencedProducersAreRefused(), facts)
    facts.writes.append(Write(PART, 1, ("b",), OLD, 1.2, 1.5))
    assert problems(FencedProducersAreRefused(), facts)


def test_fenced_producer_cannot_commit() -> None:
    facts = history(committed(a=PART))
    facts.epochs.append(EpochGiven(NEW, 0.5))
    assert problems(FencedProducersAreRefused(), facts)


@pytest.mark.parametrize(
    ("read", "is_sound"),
    [
        (OffsetRead("g", PART, 9, "c2", 3.0, 3.1), True),
        (OffsetRead("g", PART, 7, "c1", 3.0, 3.1), False),
        (OffsetRead("g", PART, 7, "c1", 1.5, 3.1), True),
        (OffsetRead("g", PART, -1, "", 3.0, 3.1), False),
        (OffsetRead("g", PART, 5, "c9", 3.0, 3.1), False),
        (OffsetRead("g", PART, 9, "c2", 1.5, 1.6), False),
    ],
    ids=["the last", "replaced", "asked before", "lost", "unheard of", "from the future"],
)
def test_committed_offset_is_the_last_one(read: OffsetRead, is_sound: bool) -> None:
    facts = history()
    facts.commit(replace(COMMIT))
    facts.commit(replace(COMMIT, id="c2", offset=9, sent_s=2.0, answered_s=2.1))
    facts.offset_reads.append(read)
    assert (not problems(CommittedOffsetsHold(), facts)) == is_sound


def test_offset_that_was_told_once_does_not_go_back() -> None:
    facts = history()
    facts.commit(replace(COMMIT))
    facts.commit(replace(COMMIT, id="c2", offset=9, sent_s=2.0, answered_s=float("inf")))
    facts.offset_reads += [
        OffsetRead("g", PART, 9, "c2", 3.0, 3.1),
        OffsetRead("g", PART, 7, "c1", 4.0, 4.1),
    ]
    assert problems(CommittedOffsetsHold(), facts)


def test_offset_of_an_aborted_transaction_does_not_count() -> None:
    facts = history()
    facts.commit(replace(COMMIT, txn=Txn("t", OLD, outcome=Outcome.ABORTED)))
    facts.offset_reads.append(OffsetRead("g", PART, 7, "c1", 3.0, 3.1))
    assert problems(CommittedOffsetsHold(), facts)


def test_commit_after_another_member_owns_the_partition_is_not_taken() -> None:
    facts = history()
    facts.holds += [replace(HOLD), replace(HOLD, member_id="m2", generation=2, start_s=2.0)]
    facts.commit(replace(COMMIT, sent_s=1.5, answered_s=2.5))
    facts.commit(replace(COMMIT, id="c2", sent_s=2.4, answered_s=2.5, is_refused=True))
    assert not problems(ZombiesAreRefused(), facts)
    facts.commit(replace(COMMIT, id="c3", sent_s=2.4, answered_s=2.5))
    assert problems(ZombiesAreRefused(), facts)


def test_partition_has_one_owner() -> None:
    facts = history()
    facts.holds += [replace(HOLD), replace(HOLD, member_id="m2", generation=2, start_s=2.0)]
    facts.beats.append(Beat("g", "m2", 2.5))
    assert not problems(OneOwner(), facts)  # the other one will hear that it is none any more
    facts.beats.append(Beat("g", "m1", 2.6))
    assert problems(OneOwner(), facts)


def test_partition_of_a_classic_group_has_one_owner_in_a_generation() -> None:
    facts = history()
    facts.holds += [
        replace(HOLD, is_classic=True),
        replace(HOLD, is_classic=True, member_id="m2", generation=2),
    ]
    assert not problems(OneOwner(), facts)
    facts.holds.append(replace(HOLD, is_classic=True, member_id="m2"))
    assert problems(OneOwner(), facts)


@pytest.mark.parametrize(
    ("back", "is_sound"),
    [
        (replace(TOLD, epoch=6), False),
        (replace(TOLD, epoch=6, stint=1), True),  # it had to join again
        (replace(TOLD, epoch=7), True),  # it may have been another's in epoch 6
        (replace(TOLD, epoch=6, parts=(PART,)), True),  # the other one has moved
        (replace(TOLD, epoch=6, member_id="m2"), True),
    ],
)
def test_what_does_not_move_does_not_pause(back: Told, is_sound: bool) -> None:
    facts = history()
    facts.told += [TOLD, replace(TOLD, parts=(PART,)), back]
    assert (not problems(OnlyMovedPause(), facts)) == is_sound


def test_member_that_has_to_give_up_everything_pauses_what_does_not_move() -> None:
    facts = history()
    facts.told += [TOLD, replace(TOLD, parts=()), replace(TOLD, epoch=6, parts=(PART,))]
    (problem,) = problems(OnlyMovedPause(), facts)
    assert str(PART) in problem


def test_everything_is_transformed_once() -> None:
    target = Part("out", 0)
    facts = history(committed(a=PART), Txn("w", OLD, {"w>a": target}, 1.0, 2.0, Outcome.COMMITTED))
    assert not problems(ExactlyOnce("in", "out"), facts)
    facts.final[target].committed[1] = "w2>a"
    assert problems(ExactlyOnce("in", "out"), facts)


def test_nothing_is_left_out_of_a_transformation() -> None:
    assert problems(ExactlyOnce("in", "out"), history(committed(a=PART)))


def test_group_processes_everything() -> None:
    facts = history(committed(a=PART))
    facts.processed["g"] = {"a"}
    assert not problems(NothingIsSkipped("g", "in"), facts)
    facts.processed["g"] = set()
    assert problems(NothingIsSkipped("g", "in"), facts)
