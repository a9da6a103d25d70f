"""What must be true of joints: each batch counts once and whole, whoever wrote and judged it how often."""

from __future__ import annotations

from collections import Counter

from goqueue.sim.kafka.history import NEVER, JointBatch, Judged, KafkaHistory, Row, Txn

_PATIENCE_S = 5.0  # then a commit is answered before everybody has heard it, and a loser may still write what is aborted


class BatchesCountOnce:
    """What counts of a batch is every row of it, once, as one verdict named the tasks that wrote them; or nothing, unless
    somebody was told that it is committed or saw it."""

    def check(self, history: KafkaHistory) -> None:
        visible = [value for log in history.final.values() for value in log.committed.values()]
        counting = _by_batch(visible)
        seen = _by_batch(
            [value for read in history.reads if read.is_committed for value in read.values.values()]
        )
        for of, row_count in history.rows.items():
            values = counting.get(of, [])
            verdicts = [verdict for verdict in history.verdicts if verdict.of == of]
            rows = Counter(Row.read(value) for value in values)
            if not values:
                if any(verdict.is_heard for verdict in verdicts) or of in seen:
                    history.violate(f"{of} was committed and is lost")
            elif rows != Counter(Row(of, number) for number in range(row_count)):
                history.violate(f"{of} has {row_count} rows, and what counts is {sorted(values)}")
            elif not any({*values} == {*_written(verdict.winners)} for verdict in verdicts):
                history.violate(f"{of} counts as {sorted(values)}, which is no verdict's")


class CommittedBatchesStayCommitted:
    """From when a driver has heard that a batch is committed, nobody writes in it or one before it, enrols or commits it."""

    def check(self, history: KafkaHistory) -> None:
        heard = _Heard(history)
        for enrolment in history.enrolments:
            if not enrolment.is_committed and heard.was_over(enrolment.of, enrolment.sent_s):
                history.violate(f"{enrolment} was let in though the batch was committed")
        for verdict in history.verdicts:
            if verdict.judged is Judged.COMMITTED and heard.was_over(verdict.of, verdict.asked_s):
                history.violate(f"{verdict.of} was committed again at {verdict.answered_s:.3f} s")
        carried_out = _Heard(history, within_s=_PATIENCE_S)
        for write in history.writes:
            row = Row.read(write.values[0])
            if row is not None and carried_out.was_over(row.of, write.sent_s):
                history.violate(f"{write} was taken though the batch was committed")


class _Heard:
    """When each batch was first known to be committed, by answers that came soon enough."""

    def __init__(self, history: KafkaHistory, within_s: float = NEVER) -> None:
        self._at_s: dict[str, dict[int, float]] = {}
        for verdict in history.verdicts:
            if verdict.is_heard and verdict.answered_s - verdict.asked_s < within_s:
                known = self._at_s.setdefault(verdict.of.joint, {})
                known[verdict.of.batch] = min(known.get(verdict.of.batch, NEVER), verdict.answered_s)

    def was_over(self, of: JointBatch, at_s: float) -> bool:
        return any(
            batch >= of.batch and heard_s < at_s for batch, heard_s in self._at_s.get(of.joint, {}).items()
        )


def _by_batch(values: list[str]) -> dict[JointBatch, list[str]]:
    found: dict[JointBatch, list[str]] = {}
    for value in values:
        row = Row.read(value)
        if row is not None:
            found.setdefault(row.of, []).append(value)
    return found


def _written(winners: list[Txn]) -> list[str]:
    return [value for txn in winners for value in txn.values]


JOINT_CHECKERS = (BatchesCountOnce(), CommittedBatchesStayCommitted())
