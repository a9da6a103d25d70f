"""What one Fetch request costs the server when 200 consumers wait for every message of a topic.

The rate is low, so that each message wakes all of them and no server is at its limit. The mock cluster has no line:
it lets a waiting fetch sleep its whole time.
"""

from __future__ import annotations

from bench.kafka_bench import Side
from bench.kafka_lines import compare
from bench.kafka_plans import Pace, Paced
from bench.line import Line
from bench.scale import Run
from bench.sides import interleave

_PER_S = 20
_VALUE_BYTES = 100


def run(run: Run) -> list[Line]:
    scale = run.scale.kafka
    sides = run.kafka.brokers()

    def measure(side: Side) -> Paced:
        with run.kafka.topic(side, partition_count=1) as target:
            plan = Pace(target, _VALUE_BYTES, "1", _PER_S, scale.consumers_s, scale.consumer_count)
            return run.kafka.load.pace(plan)

    return compare(
        sides,
        interleave(sides, scale.round_count, measure),
        name=f"kafka.fetch.{scale.consumer_count}c",
        title=f"server CPU per Fetch request, {scale.consumer_count} consumers that all read {_PER_S} messages per second",
        unit="us",
        value=lambda paced: paced.server_cpu_share / paced.fetches_per_s * 1e6,
        figures={
            "fetches_per_s": lambda paced: paced.fetches_per_s,
            "p50_ms": lambda paced: paced.p50_ms,
            "p99_ms": lambda paced: paced.p99_ms,
        },
    )
