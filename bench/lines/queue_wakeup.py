"""From a publish until a consumer that waits has the message: a parked poll of ours, the peers' own way to wait.

One message at a time, the next when the last one was acknowledged and its consumer waits again. The time holds the
sync of a server that syncs first.
"""

from __future__ import annotations

from bench.kafka_lines import compare
from bench.line import Line
from bench.lines.queue_work import with_durability
from bench.queue_bench import VALUE_BYTES
from bench.queue_plans import Wake
from bench.scale import Run
from bench.sides import interleave


def run(run: Run) -> list[Line]:
    scale = run.scale.queue
    sides = run.queue.sides()
    taken = interleave(
        sides,
        scale.round_count,
        lambda side: run.queue.load.wake(Wake(run.queue.queue(side), scale.wake_count, VALUE_BYTES)),
    )
    lines = compare(
        sides,
        taken,
        name="queue.wakeup",
        title="publish to delivery for a consumer that waits, p99",
        unit="ms",
        value=lambda woken: woken.p99_ms,
        figures={"p50_ms": lambda woken: woken.p50_ms, "most_ms": lambda woken: woken.most_ms},
    )
    return with_durability(sides, lines)
