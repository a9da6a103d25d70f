"""Sets of defaults for the timings of a cluster. What is configured by itself always wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from goqueue.node.config import ClusterConfig

# One machine or one rack: a node that is silent for 0.7 s is down, and its clients go on elsewhere a second later. Too short where a
# network or a busy machine may stand still for that long: nodes would be fenced that are well.
FAST_TIMINGS: Final[Mapping[str, int]] = {
    "heartbeat_ms": 150,
    "suspect_ms": 400,
    "dead_ms": 700,
    "lease_ms": 1_000,
    "lease_renew_ms": 250,
    "leave_ms": 3_000,  # what nobody can take over is not waited for any longer
    "replica_lag_ms_max": 1_500,
    "replica_wait_ms": 200,
    "balance_ms": 10_000,
}
# Any network: a pause of some seconds, such as of a virtual machine that moves, costs nobody its leaderships.
DEFAULT_TIMINGS: Final[Mapping[str, int]] = {
    name: value for name, value in structs.asdict(ClusterConfig()).items() if name in FAST_TIMINGS
}
PROFILES: Final[Mapping[str, Mapping[str, int]]] = {"default": DEFAULT_TIMINGS, "fast": FAST_TIMINGS}
