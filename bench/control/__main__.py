"""`python -m bench.control`: what a cluster of up to a hundred nodes costs its controller. docs/scale.md says how to read it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.control.beats import measure_beats
from bench.control.report import ControlReport, Scene, Size, save, show, write_docs
from bench.control.scenes import TOPIC_PARTITIONS, Scenes
from bench.line import BenchFailed
from bench.machine import describe_machine

_SIZES = ((3, 1_000), (10, 10_000), (30, 30_000), (100, 100_000))
_BUSY_LEADERS = 3_000  # of the node that dies, where there are enough
_RESTART_COUNT = 3  # nodes, none of them the controller; the table has the mean of one
_IDLE_S = 60
_ELECTION_COUNT = 20  # each with other waits of the voters
_BEAT_COUNT = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument("--sizes", type=int, default=len(_SIZES), help="only so many, the smallest first")
    parser.add_argument("--docs", action="store_true", help="put the result into docs/scale.md, too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the JSON")
    options = parser.parse_args()
    try:
        report = run(_SIZES[: options.sizes])
    except BenchFailed as error:
        print(f"bench failed: {error}", file=sys.stderr)
        return 1
    show(report)
    print(f"{report.seconds:.0f} s; results in {save(report, options.output)}")
    if options.docs:
        write_docs(report)
    return 0


def run(sizes: Sequence[tuple[int, int]]) -> ControlReport:
    taken, began = datetime.now(UTC), time.monotonic()
    measured = [measure(nodes, partitions) for nodes, partitions in sizes]
    return ControlReport(taken, round(time.monotonic() - began, 1), describe_machine(), measured)


def measure(node_count: int, partition_count: int) -> Size:
    scenes = Scenes(node_count, partition_count)
    found = [Scene("join", node_count, scenes.join_all())]
    busy = min(_BUSY_LEADERS, partition_count // 3) // TOPIC_PARTITIONS * TOPIC_PARTITIONS
    topic_count = partition_count // TOPIC_PARTITIONS
    found.append(Scene("create", topic_count, scenes.create_topics(led_by_last=busy)))
    found.append(Scene("idle", _IDLE_S, scenes.idle(_IDLE_S)))
    kept = scenes.keep()
    lost, led = scenes.lose_last()
    found.append(Scene("lose_node", 1, lost))
    found.append(Scene("node_back", 1, scenes.bring_back_last()))
    count = min(_RESTART_COUNT, node_count - 2)  # neither the controller nor the one that takes over
    found.append(Scene("restart", count, scenes.restart(count)))
    found.append(Scene("large_topic", 1, scenes.create_large_topic(partition_count // 10)))
    beats = measure_beats(scenes.plane, count=_BEAT_COUNT)
    replaced, election_ms = scenes.lose_controller(_ELECTION_COUNT)
    found.append(Scene("lose_controller", _ELECTION_COUNT, replaced))
    return Size(node_count, partition_count, led, found, kept, beats, election_ms)


if __name__ == "__main__":
    sys.exit(main())
