"""The arithmetic and the checks of the benchmark; the measuring itself is `python -m bench --quick`."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.batches import batch_pool, verify_log
from bench.line import BenchFailed, Bound, Goal, Line, Rounds, alternate, spread
from bench.lines.log import led_log
from bench.load import MARK, stamp

from goqueue.log.batch import validate_new
from goqueue.log.partition_log import PartitionLog
from goqueue.model.settings import TopicSettings


def filled_log(folder: Path, pool: list[bytes]) -> tuple[PartitionLog, dict[int, bytes]]:
    log = led_log(str(folder), TopicSettings())
    return log, {log.append(batch, validate_new(batch, 1 << 20), now_ms=1): batch for batch in pool}


def test_the_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_medians() -> None:
    line = Rounds([10.0, 90.0, 50.0], [20.0, 100.0, 500.0]).line("a", "a", "MB/s", reference="probe")
    assert line.ratio is not None
    assert line.ratio.median == 0.5


def test_probe_and_measurement_take_turns_at_going_first() -> None:
    order: list[str] = []

    def note(name: str) -> float:
        order.append(name)
        return 1.0

    alternate(2, lambda: note("ours"), lambda: note("probe"))
    assert order == ["probe", "ours", "ours", "probe"]


@pytest.mark.parametrize(
    ("bound", "amount", "is_met"),
    [
        (Bound.RATIO_AT_LEAST, 0.5, True),
        (Bound.RATIO_AT_LEAST, 0.6, False),
        (Bound.RATIO_AT_MOST, 0.5, True),
        (Bound.RATIO_AT_MOST, 0.4, False),
        (Bound.VALUE_AT_LEAST, 2.0, True),
        (Bound.VALUE_BELOW, 2.0, False),
    ],
)
def test_a_goal_is_met_or_not(bound: Bound, amount: float, is_met: bool) -> None:
    line = Line("a", "a", "s", spread([2.0]), ratio=spread([0.5]), goal=Goal(bound, amount))
    assert line.is_met is is_met


def test_a_stamp_is_as_long_as_its_mark() -> None:
    assert len(stamp(9_999, 10**10 - 1)) == len(MARK)


def test_a_log_with_exactly_what_was_written_is_accepted(tmp_path: Path) -> None:
    log, expected = filled_log(tmp_path, batch_pool(3, record_count=2, value_bytes=10))
    verify_log(log, expected, "test")


def test_lost_added_and_changed_batches_fail_the_run(tmp_path: Path) -> None:
    pool = batch_pool(3, record_count=2, value_bytes=10)
    log, expected = filled_log(tmp_path, pool)
    with pytest.raises(BenchFailed, match="3 are there"):
        verify_log(log, expected | {6: pool[0]}, "test")
    with pytest.raises(BenchFailed, match="nobody wrote"):
        verify_log(log, {0: pool[0], 2: pool[1]}, "test")
    with pytest.raises(BenchFailed, match="other bytes"):
        verify_log(log, expected | {2: pool[0]}, "test")
