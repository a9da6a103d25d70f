"""Each checker of joints says nothing about a sound history and something about a broken one."""

from __future__ import annotations

from goqueue.sim.kafka.checkers import KafkaChecker
from goqueue.sim.kafka.history import (
    Enrolment,
    Epoch,
    FinalLog,
    JointBatch,
    Judged,
    KafkaHistory,
    Part,
    Read,
    Row,
    Txn,
    Verdict,
    Write,
)
from goqueue.sim.kafka.joint_checkers import BatchesCountOnce, CommittedBatchesStayCommitted

PART = Part("batches", 0)
OF, NEXT = JointBatch("q", 0), JointBatch("q", 1)
FIRST, SECOND = Row(OF, 0), Row(OF, 1)


def task(name: str, *rows: Row) -> Txn:
    return Txn(name, Epoch(1, 0), {row.value(name): PART for row in rows})


def history(*committed: str) -> KafkaHistory:
    """Of a batch of two rows, which task a wrote as a whole and b and c in parts; a's verdict was heard at 2 s."""
    made = KafkaHistory(rows={OF: 2}, final={PART: FinalLog(committed=dict(enumerate(committed)))})
    made.verdicts += [
        Verdict(OF, [task("a", FIRST, SECOND)], 1.0, 2.0, Judged.COMMITTED),
        Verdict(OF, [task("b", FIRST), task("c", SECOND)], 1.5, 2.5, Judged.REFUSED),
    ]
    return made


def problems(checker: KafkaChecker, facts: KafkaHistory) -> list[str]:
    checker.check(facts)
    return facts.violations


def test_a_row_is_known_by_its_value() -> None:
    assert Row.read(SECOND.value("task")) == SECOND
    assert Row.read("t0a:7") is None


def test_a_batch_counts_as_one_verdict_has_it() -> None:
    assert not problems(BatchesCountOnce(), history("q/0/0#a", "q/0/1#a", "t0a:7"))
    assert not problems(BatchesCountOnce(), history("q/0/1#c", "q/0/0#b"))
    assert problems(BatchesCountOnce(), history("q/0/0#a", "q/0/1#c"))


def test_a_batch_that_counts_in_part_or_twice_is_a_problem() -> None:
    assert problems(BatchesCountOnce(), history("q/0/0#a"))
    assert problems(BatchesCountOnce(), history("q/0/0#a", "q/0/1#a", "q/0/0#b", "q/0/1#c"))


def test_a_batch_that_was_heard_of_or_seen_must_not_be_lost() -> None:
    assert problems(BatchesCountOnce(), history())
    unheard = history()
    unheard.verdicts[0].judged = Judged.UNKNOWN
    assert not problems(BatchesCountOnce(), unheard)
    values = {0: "q/0/0#a"}
    unheard.reads.append(
        Read("r", PART, 0, values, 2, 2, is_committed=True, sent_s=1.1, answered_s=1.2, cuts=0)
    )
    assert problems(BatchesCountOnce(), unheard)


def test_nobody_enrols_in_a_batch_that_is_known_to_be_committed() -> None:
    facts = history()
    facts.enrolments += [
        Enrolment(OF, "b", is_committed=False, sent_s=1.9),
        Enrolment(OF, "c", is_committed=True, sent_s=2.1),
        Enrolment(NEXT, "d", is_committed=False, sent_s=2.1),
    ]
    assert not problems(CommittedBatchesStayCommitted(), facts)
    facts.enrolments.append(Enrolment(OF, "e", is_committed=False, sent_s=2.1))
    assert problems(CommittedBatchesStayCommitted(), facts)


def test_nobody_commits_a_batch_again_or_one_before_it() -> None:
    facts = history()
    facts.verdicts += [
        Verdict(OF, [], 2.1, 2.2, Judged.BEFORE),
        Verdict(NEXT, [], 2.1, 3.0, Judged.COMMITTED),
    ]
    assert not problems(CommittedBatchesStayCommitted(), facts)
    facts.verdicts.append(Verdict(OF, [], 3.1, 3.2, Judged.COMMITTED))
    assert problems(CommittedBatchesStayCommitted(), facts)


def test_what_a_late_task_sends_is_not_taken() -> None:
    facts = history()
    facts.writes += [
        Write(PART, 0, ("q/0/0#b",), Epoch(2, 0), sent_s=1.9, answered_s=2.5),
        Write(PART, 1, ("p0.1.1",), Epoch(3, 0), sent_s=2.1, answered_s=2.5),
    ]
    assert not problems(CommittedBatchesStayCommitted(), facts)
    facts.writes.append(Write(PART, 2, ("q/0/1#b",), Epoch(2, 0), sent_s=2.1, answered_s=2.5))
    assert problems(CommittedBatchesStayCommitted(), facts)
    slow = history()
    slow.verdicts[0].answered_s = 6.5
    slow.writes.append(Write(PART, 2, ("q/0/1#b",), Epoch(2, 0), sent_s=6.6, answered_s=6.7))
    assert not problems(CommittedBatchesStayCommitted(), slow)
