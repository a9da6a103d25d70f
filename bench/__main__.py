"""`python -m bench`: measures, verifies what it wrote, and reports. docs/benchmarks.md says how to read it."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from bench.cluster_bench import ClusterBench
from bench.kafka_bench import KafkaBench, Warmth
from bench.line import BenchFailed, Line
from bench.lines import (
    cluster_catch_up,
    cluster_failover,
    cluster_idle,
    cluster_latency,
    cluster_rebalance,
    cluster_start,
    cluster_throughput,
    fdatasync,
    kafka_consumers,
    kafka_latency,
    kafka_partitions,
    kafka_throughput,
    log,
    loopback,
    node,
    queue_delays,
    queue_due,
    queue_lanes,
    queue_leased,
    queue_wakeup,
    queue_work,
    rest,
    spark_jobs,
    spark_latency,
    spark_read,
    spark_sink,
    start,
)
from bench.machine import describe_machine
from bench.queue_bench import QueueBench
from bench.report import Report, load, newest, save, show, write_docs
from bench.scale import FULL, QUICK, Run
from bench.spark_bench import SparkBench
from bench.workspace import workspace

GROUPS: dict[str, Callable[[Run], list[Line]]] = {
    "fdatasync": fdatasync.run,
    "loopback": loopback.run,
    "log": log.run,
    "node": node.run,
    "rest": rest.run,
    "start": start.run,
    "kafka.throughput": kafka_throughput.run,
    "kafka.latency": kafka_latency.run,
    "kafka.partitions": kafka_partitions.run,
    "kafka.consumers": kafka_consumers.run,
    "queue.work": queue_work.run,
    "queue.wakeup": queue_wakeup.run,
    "queue.lanes": queue_lanes.run,
    "queue.leased": queue_leased.run,
    "queue.delays": queue_delays.run,
    "queue.due": queue_due.run,
    "spark.read": spark_read.run,
    "spark.sink": spark_sink.run,
    "spark.latency": spark_latency.run,
    "spark.jobs": spark_jobs.run,
    "cluster.throughput": cluster_throughput.run,
    "cluster.latency": cluster_latency.run,
    "cluster.failover": cluster_failover.run_fast,
    "cluster.failover.default": cluster_failover.run_default,
    "cluster.catch_up": cluster_catch_up.run,
    "cluster.rebalance": cluster_rebalance.run,
    "cluster.start": cluster_start.run,
    "cluster.idle": cluster_idle.run,
}
_TIMEOUT_S = {
    False: 5_400,
    True: 900,
}  # a run that hangs fails; on a busy machine one takes several times as long


def main() -> int:
    options = _parse()
    try:
        if options.docs is not None:
            path = Path(options.docs) if options.docs else newest()
            write_docs(path)
            show(load(path))
            return 0
        signal.signal(signal.SIGALRM, _too_slow)
        signal.signal(signal.SIGTERM, _terminated)
        signal.alarm(_TIMEOUT_S[options.quick])
        report = run(options.only or [*GROUPS], is_quick=options.quick)
        show(report)
        print(f"{report.seconds:.0f} s; results in {save(report, options.output)}")
        return 0
    except BenchFailed as error:
        print(f"bench failed: {error}", file=sys.stderr)
        return 1


def run(names: list[str], *, is_quick: bool) -> Report:
    taken, started, machine = datetime.now(UTC), time.monotonic(), describe_machine()
    lines: list[Line] = []
    scale = QUICK if is_quick else FULL
    warmth = Warmth(scale.kafka.warm_count, scale.kafka.warm_request_count)
    with (
        workspace() as folder,
        KafkaBench(folder, warmth) as kafka,
        QueueBench(folder, scale.queue.warm_count) as queue,
        SparkBench() as spark,
    ):
        cluster = ClusterBench(folder)
        for name, measure in GROUPS.items():
            if name in names:
                begun = time.monotonic()
                lines += measure(Run(folder, scale, kafka, queue, spark, cluster))
                print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - started, 1)
    absent = kafka.absent | queue.absent | spark.absent | cluster.absent
    return Report(taken, is_quick, set(names) < set(GROUPS), seconds, machine, lines, absent)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, a few minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*GROUPS],
        help="one group of lines; may be repeated",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the JSON")
    parser.add_argument(
        "--docs",
        nargs="?",
        const="",
        metavar="FILE",
        help="measure nothing; put this result (default: the newest whole one) into docs/benchmarks.md",
    )
    return parser.parse_args()


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise BenchFailed("the run took longer than it may")


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # through every `with`, so that processes and files go


if __name__ == "__main__":
    sys.exit(main())
