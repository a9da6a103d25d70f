"""Who may begin and who may cease to vote, one at a time, and what waits for those who vote. Raft makes a change safe whatever it
is; these rules keep an operator from one after which nothing could be decided any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from goqueue.core.cluster.placement import REPLICATION_FACTOR_DEFAULT
from goqueue.core.raft.messages import VOTER_COUNT_MAX
from goqueue.core.raft.states import Standing
from goqueue.core.raft.voters import quorum
from goqueue.model.cluster_errors import NodeNotFound, VotersRefused
from goqueue.model.errors import NotEnoughReplicas

LACKING_COUNT_MAX: Final = 1_000  # entries of one message: who lacks more would hold decisions up


class Electorate(Struct, frozen=True):
    """As the controller sees it."""

    controller: str
    voters: tuple[str, ...]
    standings: Mapping[str, Standing]  # of all others that it sends entries to
    silent_ms_max: int  # who has not answered for longer counts as dead, as does who has never answered

    def is_alive(self, name: str) -> bool:
        """It would confirm what is decided."""
        if name == self.controller:
            return True
        standing = self.standings.get(name)
        if standing is None or standing.silent_ms is None or standing.is_recovering:
            return False
        return standing.silent_ms <= self.silent_ms_max


def with_added(electorate: Electorate, name: str, nodes: Collection[str]) -> tuple[str, ...]:
    """The voters if this one is added; `nodes` are those of the cluster."""
    voters = electorate.voters
    if name in voters:
        raise VotersRefused(f"node {name!r} votes already", node=name)
    if name not in nodes:
        raise NodeNotFound(name)
    if len(voters) >= VOTER_COUNT_MAX:
        raise VotersRefused(
            f"there are {len(voters)} voters, and no more than {VOTER_COUNT_MAX} are allowed; remove one first",
            node=name,
            voters=list(voters),
        )
    standing = electorate.standings.get(name)
    if standing is not None and standing.is_recovering:
        raise VotersRefused(
            f"node {name!r} has not caught up: it has just begun with an empty disk; try again in a moment",
            node=name,
        )
    if not electorate.is_alive(name):
        raise VotersRefused(
            f"node {name!r} is not heard of; start it, and make it a voter when it is ready",
            node=name,
            dead=[name],
        )
    lacking_count = electorate.standings[name].lacking_count
    if lacking_count > LACKING_COUNT_MAX:
        raise VotersRefused(
            f"node {name!r} has not caught up: it lacks {lacking_count} entries of the metadata log; try again later",
            node=name,
            lacking=lacking_count,
        )
    after = (*voters, name)
    _check_majority(electorate, after)
    return after


def with_removed(electorate: Electorate, name: str, nodes: Collection[str]) -> tuple[str, ...]:
    voters = electorate.voters
    if name not in voters:
        if name not in nodes:
            raise NodeNotFound(name)
        raise VotersRefused(f"node {name!r} does not vote", node=name)
    after = tuple(voter for voter in voters if voter != name)
    if not after:
        raise VotersRefused(f"node {name!r} is the only voter; add another one first", node=name)
    _check_majority(electorate, after)
    return after


def check_all_joined(voters: Collection[str], nodes: Collection[str]) -> None:
    """Before a topic gets as many replicas as usual: while a new cluster comes up, there may be fewer nodes than that, and a topic
    would have too few for ever."""
    wanted_count = min(REPLICATION_FACTOR_DEFAULT, len(voters))
    if len(nodes) < wanted_count:
        missing = sorted(set(voters) - set(nodes))
        raise NotEnoughReplicas(
            f"a topic has {wanted_count} replicas here, but only {len(nodes)} of the voters {', '.join(sorted(voters))} have ever "
            f"joined; start {', '.join(missing)}, or give a replication factor of at most {len(nodes)}",
            replication_factor=wanted_count,
            missing=missing,
        )


def _check_majority(electorate: Electorate, after: tuple[str, ...]) -> None:
    dead = [name for name in after if not electorate.is_alive(name)]
    alive_count = len(after) - len(dead)
    if alive_count < quorum(after):
        raise VotersRefused(
            f"of the voters {', '.join(after)} only {alive_count} would be alive, and {quorum(after)} are needed to decide "
            f"anything; bring {', '.join(dead)} back first, or put another voter in its place",
            voters=list(after),
            dead=dead,
        )
