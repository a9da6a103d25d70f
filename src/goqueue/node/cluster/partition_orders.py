"""What a tool asks of single partitions, on whichever node: other replicas, another leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.core.catalog import ElectLeaders, PartitionsChanged, ReassignPartitions
from goqueue.core.cluster.plans import MOVE_COUNT_MAX
from goqueue.model.cluster_errors import EligibleLeadersNotAvailable, PreferredLeaderNotAvailable
from goqueue.model.errors import ElectionNotNeeded, GoQueueError, InvalidReplicationFactor, InvalidRequest
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata
from goqueue.node.requests import NO_LEADER

Place = tuple[str, int]


class Moving(NamedTuple):
    """A partition that is on its way to other nodes. While it is, its replicas are the old and the new ones."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionOrders:
    def __init__(self, metadata: Metadata, guard: Guard) -> None:
        self._metadata = metadata
        self._guard = guard

    def moving(self) -> list[Moving]:
        self._guard.admit_read()  # the catalogue of a node that starts may be an old one
        table = self._metadata.catalog.partitions
        found = [(place, table.get(*place)) for place in table.moving()]
        return [Moving(*place, state.replicas, state.adding, state.removing) for place, state in found]

    async def reassign(
        self, targets: Mapping[Place, Sequence[int] | None], *, keeps_count: bool
    ) -> dict[Place, GoQueueError | None]:
        """To other nodes, or, where that is None, back to where it came from. Each by itself; what can be done is done in one
        decision, for which everything else waits: so there is a limit to it. With `keeps_count` it must be as many as before."""
        if len(targets) > MOVE_COUNT_MAX:
            too_many = InvalidRequest(
                f"the request moves {len(targets)} partitions, more than the {MOVE_COUNT_MAX} of one; name fewer at once"
            )
            return dict.fromkeys(targets, too_many)
        catalog = self._metadata.catalog
        outcomes: dict[Place, GoQueueError | None] = {}
        for place, replicas in targets.items():
            try:
                if keeps_count and replicas is not None:
                    _check_count(place, len(catalog.partition(*place).target), len(replicas))
                catalog.decide(_command({place: replicas}), 0)
                outcomes[place] = None
            except GoQueueError as error:
                outcomes[place] = error
        right = {place: targets[place] for place, error in outcomes.items() if error is None}
        if right:
            try:
                await self._metadata.execute(_command(right))
            except GoQueueError as error:  # something has changed meanwhile, or there is no controller
                outcomes |= dict.fromkeys(right, error)
        return outcomes

    async def elect(
        self, places: Sequence[Place] | None, *, is_unclean: bool
    ) -> dict[Place, GoQueueError | None]:
        """The preferred replica leads; or, where nobody does, any that is there, whatever it lacks. None asks for all that need
        it."""
        catalog = self._metadata.catalog
        if places is None:
            places = catalog.partitions.led_by(NO_LEADER) if is_unclean else catalog.partitions.astray()
        outcomes = {place: self._why_not(place, is_unclean=is_unclean) for place in places}
        needed = [place for place, error in outcomes.items() if error is None]
        if not needed:
            return outcomes
        events = await self._metadata.execute(ElectLeaders(needed, "unclean" if is_unclean else "preferred"))
        elected = {
            (change.topic, change.partition)
            for event in events
            if isinstance(event, PartitionsChanged)
            for change in event.changes
            if change.leader != NO_LEADER
        }
        for place in needed:
            if place not in elected:
                outcomes[place] = self._failure(place, is_unclean=is_unclean)
        return outcomes

    def _why_not(self, place: Place, *, is_unclean: bool) -> GoQueueError | None:
        try:
            state = self._metadata.catalog.partition(*place)
        except GoQueueError as error:
            return error
        topic, index = place
        is_led = state.leader != NO_LEADER if is_unclean else state.leader == state.replicas[0]
        if not is_led:
            return None
        return ElectionNotNeeded(
            f"{topic}-{index} is led by node {state.leader} already", topic=topic, partition=index
        )

    def _failure(self, place: Place, *, is_unclean: bool) -> GoQueueError:
        topic, index = place
        state = self._metadata.catalog.partition(topic, index)
        if is_unclean:
            return EligibleLeadersNotAvailable(
                f"none of the replicas {list(state.replicas)} of {topic}-{index} is there to lead it",
                topic=topic,
                partition=index,
            )
        return PreferredLeaderNotAvailable(
            f"node {state.replicas[0]} should lead {topic}-{index}, but is down, drains, or is not in sync",
            topic=topic,
            partition=index,
        )


def _command(targets: Mapping[Place, Sequence[int] | None]) -> ReassignPartitions:
    return ReassignPartitions(
        [(*place, None if replicas is None else list(replicas)) for place, replicas in targets.items()]
    )


def _check_count(place: Place, before: int, after: int) -> None:
    if before != after:
        topic, index = place
        raise InvalidReplicationFactor(
            f"{topic}-{index} has {before} replicas and would have {after}, which the request does not allow",
            topic=topic,
            partition=index,
        )
