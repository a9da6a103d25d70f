"""All loads, and which of them a run has if it is not told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tests.chaos.load.delaying import Delay
from tests.chaos.load.grouping import Grouped
from tests.chaos.load.job import Load
from tests.chaos.load.producing import Produce
from tests.chaos.load.reading import Read
from tests.chaos.load.rest_publishing import Rest
from tests.chaos.load.rest_queueing import Queue
from tests.chaos.load.sharing import Share
from tests.chaos.load.transforming import Transact

_ALL: Final[tuple[Load, ...]] = (
    Produce(),
    Read(),
    Grouped("classic"),
    Grouped("consumer"),
    Transact(),
    Share(),
    Delay(),
    Rest(),
    Queue(),
)
LOADS: Final[Mapping[str, Load]] = {one.name: one for one in _ALL}  # who writes comes before who reads it
FINAL: Final = "final"


def with_needs(names: Iterable[str]) -> list[str]:
    """In the order of `LOADS`, with whatever they need."""
    wanted = set(names)
    for name in list(wanted):
        wanted |= set(LOADS[name].needs)
    return [name for name in LOADS if name in wanted]
