"""Feature levels: what all nodes of a cluster understand, as one number.

A node says with every heartbeat up to which level it understands what the catalogue's log may hold. When all nodes that are
registered understand a higher one, the controller raises the level in force, for good. A decision is refused while one of its
events belongs to a higher level, and so is a node that joins and does not understand the level in force. So a node never gets what
it does not know; if it gets it all the same it stops (`events.py`), because whoever skips a decision has another catalogue.

Whoever adds an event, or a field to one, begins a new level here. A field that is left out where it has its default may be
given a value only by decisions of its level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from goqueue.core.cluster.events import Event, LevelRaised, ScalingChanged, TopicCreated, TopicShrunk
from goqueue.core.cluster.topic_register import is_keyed
from goqueue.model.cluster_errors import LevelTooLow

LEVEL_OLDEST: Final = 1
KEYED_LEVEL: Final = 2
VOTERS_LEVEL: Final = 2
EPOCHS_LEVEL: Final = 2
BROUGHT: Final[Mapping[int, str]] = {
    1: "the catalogue as it was before there were levels",
    2: "topics with scaling=keyed, voters that change, levels, epochs of deleted topics",
}
LEVEL_NEWEST: Final = max(BROUGHT)

_OF_EVENTS: Final[Mapping[type[Event], int]] = {LevelRaised: 2, TopicShrunk: 2, ScalingChanged: 2}


def level_of(event: Event) -> int:
    """Who understands this level understands the event."""
    if isinstance(event, TopicCreated) and is_keyed(event.overrides):
        return KEYED_LEVEL
    return _OF_EVENTS.get(type(event), LEVEL_OLDEST)


def check_level(needed: int, in_force: int, what: str) -> None:
    if needed > in_force:
        raise LevelTooLow(
            f"{what} needs feature level {needed}, and level {in_force} is in force until every node of the cluster runs a version "
            "that understands more; upgrade the others, or remove those that are gone",
            needed=needed,
            level=in_force,
        )
