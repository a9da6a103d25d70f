"""How the lanes of queue groups stand: what they have, what is in somebody's hands, how fast they are served."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from goqueue.core.lease.window import Window
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.node.queue.ledger import OwnedLedger


class LaneStats(Struct, frozen=True):
    ready_count: int  # not given to anybody yet
    waiting_count: int  # came back, and will be given again
    in_flight_count: int
    served_count: int  # since the start of the node
    served_per_second: float
    served_ms: int | None  # when one was given last


class WindowLanes(Struct, frozen=True):
    """Of one group in one partition; `lanes` by priority."""

    topic: str
    partition: int
    group: str
    lanes: list[LaneStats]


async def window_lanes(ledger: OwnedLedger, window: Window, now_ms: int) -> WindowLanes:
    ready_counts = await _ready_counts(ledger, window)
    lanes = ledger.state.lanes_of(window)
    return WindowLanes(
        ledger.source.topic,
        ledger.source.index,
        window.group_id,
        [
            LaneStats(
                ready_counts[lane],
                window.entry_counts[lane] - window.leased_counts[lane],
                window.leased_counts[lane],
                lanes.served_counts[lane],
                round(lanes.rates[lane].per_second(now_ms), 3),
                lanes.served_ms[lane],
            )
            for lane in range(LANE_COUNT)
        ],
    )


async def _ready_counts(ledger: OwnedLedger, window: Window) -> Sequence[int]:
    """What lies behind the cursors. Whatever has not been looked at yet counts as normal, markers and gaps too."""
    cursors, end = window.cursors, ledger.source.last_stable_offset
    normal_start = max(cursors[NORMAL], ledger.source.log.log_start)
    counts = [0] * LANE_COUNT
    counts[NORMAL] = max(0, end - normal_start)
    for lane in range(LANE_COUNT):
        if lane != NORMAL:
            counts[lane] = await ledger.postings.depth(lane, cursors[lane], end)
            counts[NORMAL] -= await ledger.postings.depth(lane, normal_start, end)
    counts[NORMAL] = max(0, counts[NORMAL])
    return counts
