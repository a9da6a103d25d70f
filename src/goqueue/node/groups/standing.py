"""How a group stands to the gates of a topic, as nodes tell each other."""

from __future__ import annotations

from msgspec import Struct

from goqueue.core.cluster.scaling import Scaling


class GateLeft(Struct, frozen=True):
    """A gate that a group has not passed."""

    blocked: int
    behind: int
    until: int
    committed: int | None  # in `behind`; None: nothing


class GroupStanding(Struct, frozen=True):
    """`is_settled`: none of its members has a partition that it should not be given, or would get one though it is to read others
    before it has come to the end of that."""

    group_id: str
    has_members: bool
    is_settled: bool
    left: list[GateLeft]


class StandingsCall(Struct, frozen=True):
    """`scaling` is what the asking node knows of the topic."""

    topic: str
    scaling: Scaling


class Standings(Struct, frozen=True):
    """Of the groups that a node coordinates: of the partitions `shards` of `__consumer_offsets`. `is_current`: it knows the
    topic as the asking node does, and whatever it gives to groups from now on is in accordance with that."""

    is_current: bool
    shards: list[int]
    groups: list[GroupStanding]
