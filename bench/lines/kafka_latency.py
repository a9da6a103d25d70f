"""From when a message was due to when a consumer has it, at 10,000 messages of 1 KB per second.

The producer lingers as the client does by default (5 ms), which is part of what is measured, on every side. The mock
cluster has no line: it lets a waiting fetch sleep its whole time.
"""

from __future__ import annotations

from bench.disk_probe import sync_rate
from bench.kafka_bench import Side
from bench.kafka_lines import compare
from bench.kafka_plans import Pace, Paced
from bench.line import Bound, Goal, Line, Rounds
from bench.peers.known import APACHE_KAFKA, OURS
from bench.scale import Run
from bench.sides import interleave

_PER_S = 10_000
_VALUE_BYTES = 1_024
_PARTITION_COUNT = 3
_GROUP_BYTES = 64 * 1024  # what comes together in 5 ms
_P99_MS_MAX = 10.0
_SYNC_RATIO_MAX = 3.0


def run(run: Run) -> list[Line]:
    leader, _ = _measure(run, "1")
    durable, sync_ms = _measure(run, "all")
    sides = run.kafka.brokers()
    ours = [paced.p99_ms for paced in durable[sides[0].name]]
    return [
        *_lines(sides, leader, "1", {APACHE_KAFKA.name: Goal(Bound.VALUE_BELOW, _P99_MS_MAX)}),
        *_lines(sides, durable, "all", {}),
        Rounds(ours, sync_ms).line(
            "kafka.latency.acks_all.vs_disk",
            "end to end, 10,000 x 1 KB per second, acks=all, p99; against the p99 of fdatasync of 64 KB",
            "ms",
            reference="fdatasync of 64 KB, p99",
            goal=Goal(Bound.RATIO_AT_MOST, _SYNC_RATIO_MAX),
        ),
    ]


def _measure(run: Run, acks: str) -> tuple[dict[str, list[Paced]], list[float]]:
    """With the p99 of an fdatasync, taken in the same rounds."""
    sync_ms: list[float] = []

    def measure(side: Side) -> Paced:
        if side.name == OURS.name:
            sync_ms.append(sync_rate(run.folder, _GROUP_BYTES, run.scale.round_s).latency_ms(0.99))
        with run.kafka.topic(side, partition_count=_PARTITION_COUNT) as target:
            return run.kafka.load.pace(Pace(target, _VALUE_BYTES, acks, _PER_S, run.scale.kafka.latency_s))

    return interleave(run.kafka.brokers(), run.scale.kafka.round_count, measure), sync_ms


def _lines(sides: list[Side], taken: dict[str, list[Paced]], acks: str, goals: dict[str, Goal]) -> list[Line]:
    return compare(
        sides,
        taken,
        name=f"kafka.latency.acks_{acks}",
        title=f"end to end, 10,000 x 1 KB per second, acks={acks}, p99",
        unit="ms",
        value=lambda paced: paced.p99_ms,
        figures={
            "p50_ms": lambda paced: paced.p50_ms,
            "p99.9_ms": lambda paced: paced.p999_ms,
            "server_cpu_s_per_million": lambda paced: paced.server_cpu_share / _PER_S * 1e6,
            "sender_lateness_p99_ms": lambda paced: paced.lateness_p99_ms,
        },
        goals=goals,
    )
