"""Produce and consume by the Kafka protocol, as fast as librdkafka can, against Apache Kafka and the client's ceiling.

Every burst goes to a topic of its own and is read back whole; that reading is the consume line. (The mock cluster
drops what is old, so what it is to be read from is spread over more partitions.) Rates on a machine with few cores
depend on how client and server share them, so the server's processor time per message is kept, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.disk_probe import sync_rate
from bench.kafka_bench import Side
from bench.kafka_lines import compare
from bench.kafka_plans import Consume, Consumed, Produce, Produced, Spreading
from bench.line import Bound, Goal, Line, Rounds, spread
from bench.peers.known import APACHE_KAFKA, MOCK, OURS
from bench.scale import Run
from bench.sides import interleave

_GROUP_BYTES = 1024 * 1024
_MOCK_PARTITION_BYTES = 3_500_000  # it keeps 5 MB with what is around the values, and drops whole batches
_SMALL_BYTES, _LARGE_BYTES = 100, 1_024
_SIZES = {_SMALL_BYTES: "100b", _LARGE_BYTES: "1k"}
_VS_KAFKA = Goal(Bound.RATIO_AT_LEAST, 1.0)
_VS_MOCK = Goal(Bound.RATIO_AT_LEAST, 0.8)
_VS_DISK = Goal(Bound.RATIO_AT_LEAST, 0.7)


@dataclass(frozen=True, slots=True)
class _Case:
    value_bytes: int
    partition_count: int
    acks: str

    @property
    def shape(self) -> str:
        return f"{_SIZES[self.value_bytes]}.{self.partition_count}p"

    @property
    def title(self) -> str:
        plural = "s" if self.partition_count > 1 else ""
        return f"{self.value_bytes:,} B, {self.partition_count} partition{plural}"


@dataclass(frozen=True, slots=True)
class _Burst:
    count: int
    produced: Produced
    consumed: Consumed

    @property
    def produce_rate(self) -> float:
        return self.count / self.produced.seconds

    @property
    def consume_rate(self) -> float:
        return self.consumed.message_count / self.consumed.seconds

    @property
    def produce_cpu_s_per_million(self) -> float:
        return self.produced.server_cpu_s / self.count * 1e6

    @property
    def consume_cpu_s_per_million(self) -> float:
        return self.consumed.server_cpu_s / self.consumed.message_count * 1e6


def run(run: Run) -> list[Line]:
    lines: list[Line] = []
    for value_bytes in _SIZES:
        for partition_count in run.scale.kafka.burst_partition_counts:
            lines += _leader(run, _Case(value_bytes, partition_count, "1"))
            lines += _all(run, _Case(value_bytes, partition_count, "all"))
    return lines


def _leader(run: Run, case: _Case) -> list[Line]:
    sides = run.kafka.sides()
    taken = interleave(sides, run.scale.kafka.round_count, lambda side: _burst(run, side, case))
    return [
        *_produce_lines(sides, taken, case, {APACHE_KAFKA.name: _VS_KAFKA, MOCK.name: _VS_MOCK}),
        *compare(
            sides,
            taken,
            name=f"kafka.consume.{case.shape}",
            title=f"consume, {case.title}",
            unit="msg/s",
            value=lambda burst: burst.consume_rate,
            figures={
                "server_cpu_s_per_million": lambda burst: burst.consume_cpu_s_per_million,
                "client_cpu_share": lambda burst: burst.consumed.client_cpu_s / burst.consumed.seconds,
            },
            goals={MOCK.name: _VS_MOCK},
        ),
    ]


def _all(run: Run, case: _Case) -> list[Line]:
    """Apache Kafka acknowledges before anything is on the disk, so only its synced topic is measured by the same rule."""
    sides = run.kafka.sides_for_durable()
    disk: list[float] = []

    def measure(side: Side) -> _Burst:
        if side.name == OURS.name:
            disk.append(sync_rate(run.folder, _GROUP_BYTES, run.scale.round_s / 2).mb_per_s)
        return _burst(run, side, case)

    taken = interleave(sides, run.scale.kafka.round_count, measure)
    lines = _produce_lines(sides, taken, case, {})
    if case.value_bytes == _LARGE_BYTES:
        lines.append(_against_disk(taken[sides[0].name], disk, case))
    return lines


def _burst(run: Run, side: Side, case: _Case) -> _Burst:
    scale = run.scale.kafka
    count = scale.small_count if case.value_bytes == _SMALL_BYTES else scale.large_count
    with run.kafka.topic(side, partition_count=case.partition_count) as target:
        produced, consumed = run.kafka.burst(side, Produce(target, count, case.value_bytes, case.acks))
    if not side.is_broker:
        consumed = _consume_kept(run, side, count, case.value_bytes)
    return _Burst(count, produced, consumed)


def _consume_kept(run: Run, side: Side, count: int, value_bytes: int) -> Consumed:
    """From as many partitions as the mock cluster needs to keep all of it."""
    partition_count = count * value_bytes // _MOCK_PARTITION_BYTES + 1
    with run.kafka.topic(side, partition_count=partition_count) as target:
        plan = Produce(target, count, value_bytes, "1", Spreading.IN_BLOCKS)
        run.kafka.load.produce(plan)
        return run.kafka.load.consume(Consume(target, count, value_bytes, is_everything_kept=True))


def _produce_lines(
    sides: list[Side], taken: dict[str, list[_Burst]], case: _Case, goals: dict[str, Goal]
) -> list[Line]:
    return compare(
        sides,
        taken,
        name=f"kafka.produce.{case.shape}.acks_{case.acks}",
        title=f"produce, {case.title}, acks={case.acks}",
        unit="msg/s",
        value=lambda burst: burst.produce_rate,
        figures={
            "server_cpu_s_per_million": lambda burst: burst.produce_cpu_s_per_million,
            "client_cpu_share": lambda burst: burst.produced.client_cpu_s / burst.produced.seconds,
        },
        goals=goals,
    )


def _against_disk(bursts: list[_Burst], disk: list[float], case: _Case) -> Line:
    rates = [burst.produce_rate * case.value_bytes / 1e6 for burst in bursts]
    return Rounds(rates, disk).line(
        f"kafka.produce.{case.shape}.acks_{case.acks}.vs_disk",
        f"produce, {case.title}, acks={case.acks}; against fdatasync of 1 MB groups",
        "MB/s",
        reference="fdatasync of 1 MB groups",
        goal=_VS_DISK,
        details={"disk_mb_per_s": spread(disk).median},
    )
