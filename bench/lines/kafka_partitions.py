"""What one Produce request costs the server when it is one of many small ones, on one partition and on a thousand.

Every request has one message of 100 B, so that requests, and not the client's batching, are compared. The first
message of each partition is sent before the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.kafka_bench import Side
from bench.kafka_lines import compare
from bench.kafka_plans import Produce, Produced, Spreading
from bench.line import Line
from bench.scale import Run
from bench.sides import interleave

_VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class _Costs:
    one: Produced
    many: Produced

    @property
    def growth(self) -> float:
        """How many times as much a request costs on many partitions."""
        return _cpu_us(self.many) / _cpu_us(self.one)


def run(run: Run) -> list[Line]:
    sides = run.kafka.sides()
    many = run.scale.kafka.partition_count
    taken = interleave(
        sides,
        run.scale.kafka.round_count,
        lambda side: _Costs(_produce(run, side, 1), _produce(run, side, many)),
    )
    return compare(
        sides,
        taken,
        name=f"kafka.request.{many}p",
        title=f"server CPU per Produce request of one 100 B message, round robin over {many:,} partitions",
        unit="us",
        value=lambda costs: _cpu_us(costs.many),
        figures={
            "requests_per_s": lambda costs: _count(costs.many) / costs.many.seconds,
            "one_partition_us": lambda costs: _cpu_us(costs.one),
            "growth": lambda costs: costs.growth,
        },
    )


def _produce(run: Run, side: Side, partition_count: int) -> Produced:
    with run.kafka.topic(side, partition_count=partition_count) as target:
        plan = Produce(
            target, run.scale.kafka.request_count, _VALUE_BYTES, "1", spreading=Spreading.ROUND_ROBIN
        )
        produced, _ = run.kafka.burst(side, plan)
        return produced


def _cpu_us(produced: Produced) -> float:
    return produced.server_cpu_s / _count(produced) * 1e6


def _count(produced: Produced) -> int:
    assert produced.request_count is not None
    return produced.request_count
