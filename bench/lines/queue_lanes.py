"""Priorities against none: the same messages drained, once spread over all five lanes and once in one."""

from __future__ import annotations

from bench.line import Bound, Goal, Line, alternate, spread
from bench.queue_bench import BATCH_COUNT
from bench.queue_plans import Worked
from bench.scale import Run

_PRIORITIES = (2, 0, 3, 1, 4)
_RATIO_MIN = 0.9


def run(run: Run) -> list[Line]:
    scale, bench = run.scale.queue, run.queue
    ours = bench.ours()
    rates: dict[bool, list[float]] = {False: [], True: []}

    def drain(*, has_lanes: bool) -> float:
        plan = bench.plan(ours, scale.work_count, _PRIORITIES if has_lanes else ())
        worked = bench.load.work(plan)
        rates[has_lanes].append(worked.count / worked.drained.seconds)
        return _drained_per_core(worked)

    rounds = alternate(scale.lane_round_count, lambda: drain(has_lanes=True), lambda: drain(has_lanes=False))
    return [
        rounds.line(
            "queue.lanes",
            f"poll and ack in batches of {BATCH_COUNT}, messages of five priorities, for each second of the broker's processor time",
            "msg/s",
            reference="the same without priorities",
            goal=Goal(Bound.RATIO_AT_LEAST, _RATIO_MIN),
            details={
                "drain_per_s": spread(rates[True]).median,
                "drain_per_s_without": spread(rates[False]).median,
            },
        )
    ]


def _drained_per_core(worked: Worked) -> float:
    return worked.count / worked.drained.server_cpu_s
