"""Publish, take and acknowledge in batches of 100: ours by REST and by ShareConsumer, and the peers.

Everything is published and confirmed first and then drained, so that the two do not compete for the cores. The rate in
all depends on how client and server share a machine with few cores; the rate for each second of the server's own
processor time does not, and it is what a larger machine would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from bench.kafka_lines import compare
from bench.line import Bound, Goal, Line, spread
from bench.queue_bench import BATCH_COUNT, OURS_BY_KAFKA, VALUE_BYTES, QueueSide
from bench.queue_plans import Worked
from bench.scale import Run
from bench.sides import interleave

_PER_CORE_AIM = Goal(Bound.VALUE_AT_LEAST, 50_000)
_TITLE = f"publish, take and ack, {VALUE_BYTES} B in batches of {BATCH_COUNT}"
_FIGURES = {
    "publish_per_s": lambda worked: worked.count / worked.published.seconds,
    "drain_per_s": lambda worked: worked.count / worked.drained.seconds,
    "publish_server_cpu_s_per_million": lambda worked: worked.published.server_cpu_s / worked.count * 1e6,
    "drain_server_cpu_s_per_million": lambda worked: worked.drained.server_cpu_s / worked.count * 1e6,
    "client_cpu_share": lambda worked: worked.client_share,
}


def run(run: Run) -> list[Line]:
    scale = run.scale.queue
    sides = run.queue.sides()
    taken = interleave(
        sides,
        scale.round_count,
        lambda side: run.queue.load.work(run.queue.plan(side, scale.work_count)),
    )
    aims = [_aim(side, taken[side.name]) for side in sides if side.name in (sides[0].name, OURS_BY_KAFKA)]
    return aims + with_durability(sides, _compared(sides, taken))


def _aim(side: QueueSide, samples: Sequence[Worked]) -> Line:
    return Line(
        f"queue.per_core.{side.name}",
        f"{_TITLE}, for each second of the broker's processor time; {side.title}",
        "msg/s",
        spread([worked.rate_per_core for worked in samples]),
        goal=_PER_CORE_AIM,
    )


def _compared(sides: Sequence[QueueSide], taken: Mapping[str, Sequence[Worked]]) -> list[Line]:
    return [
        *compare(
            sides,
            taken,
            name="queue.per_core",
            title=f"{_TITLE}, for each second of the broker's processor time",
            unit="msg/s",
            value=lambda worked: worked.rate_per_core,
            figures=_FIGURES,
        ),
        *compare(
            sides,
            taken,
            name="queue.rate",
            title=f"{_TITLE}, in all",
            unit="msg/s",
            value=lambda worked: worked.rate,
            figures={},
        ),
    ]


def with_durability(sides: Sequence[QueueSide], lines: Sequence[Line]) -> list[Line]:
    """A rate says little without what is on the disk when a message is confirmed."""
    ours = {"durability": sides[0].server.durability}
    promises = {f"vs_{side.name}": {f"{side.name}_durability": side.server.durability} for side in sides[1:]}
    return [
        structs.replace(line, details=line.details | ours | promises.get(line.name.rpartition(".")[2], {}))
        for line in lines
    ]
