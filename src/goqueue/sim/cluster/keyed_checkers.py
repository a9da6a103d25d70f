"""What must be true of a topic with `scaling=keyed`, however often its partitions come and go (ADR 35)."""

from __future__ import annotations

from typing import Final, Protocol

from goqueue.node.scaling.quiet import PATIENCE_S
from goqueue.sim.cluster.keyed_history import KeyedHistory, Sent
from goqueue.sim.kafka.history import NEVER

_MOMENT_S: Final = (
    1.5  # within which a request is answered for sure to be in time; see `goqueue.node.scaling.quiet`
)
_PATIENCE_S: Final = PATIENCE_S - 1.0  # nobody is let in without evidence before that is over


class KeyedChecker(Protocol):
    def check(self, history: KeyedHistory) -> None: ...


class KeysInOrder:
    """A group processes the records of a key in order, each for the first time: of what was acknowledged before the next was
    sent, of what was acknowledged within a moment, and of what a partition took late that knew its producer, while topics only grew."""

    def check(self, history: KeyedHistory) -> None:
        for group, processed in history.processed.items():
            newest: dict[str, Sent] = {}
            for value in processed:  # in this order
                sent = history.sent[value]
                known = newest.get(sent.key)
                if known is None or sent.number > known.number:
                    newest[sent.key] = sent
                elif _is_promised(history, sent, known):
                    history.cluster.violate(
                        f"{group} processed {value} {_places(history, sent)} after {known.value} {_places(history, known)}"
                    )


def _is_promised(history: KeyedHistory, sent: Sent, later: Sent) -> bool:
    took_s = sent.acked_s - sent.queued_s
    if sent.acked_s <= later.queued_s:
        return True
    if _has_gone_back(history, sent, later):
        return False
    return took_s <= _MOMENT_S or (took_s <= _PATIENCE_S and _needs_evidence(history, sent, later))


def _has_gone_back(history: KeyedHistory, sent: Sent, later: Sent) -> bool:
    """Whether its producer was told of fewer partitions by a node that is behind, and has sent the later one the long way while the
    other was still on the straight one."""
    is_shrinking = any(one.ordered_s <= later.queued_s for one in history.shrinkings)
    return later.way.partition_count < sent.way.partition_count and not is_shrinking


def _needs_evidence(history: KeyedHistory, sent: Sent, later: Sent) -> bool:
    """Whether the later one could only come straight to a new partition when the old one has taken what its producer had for it
    (ADR 38). That is not asked of a producer that the old one did not know when the new one came, nor for partitions that shrink. One that
    has known more partitions before has shown what it had then, and may have been told of fewer by a node that is behind."""
    way = sent.way
    if way.known_s == NEVER:
        return False
    if any(one.ordered_s <= later.acked_s and one.over_s >= way.known_s for one in history.shrinkings):
        return False
    since_s = max((one.over_s for one in history.shrinkings if one.over_s < way.known_s), default=0.0)
    came_s = min(
        (
            one.ordered_s
            for one in history.growths
            if one.ordered_s >= since_s and one.partition_count > later.way.partition
        ),
        default=0.0,
    )
    if not any(
        one.way[:2] == way[:2] and since_s <= one.queued_s and one.acked_s <= came_s
        for one in history.sent.values()
    ):
        return False
    return not any(
        one.way.producer == way.producer
        and one.way.partition_count > way.partition_count
        and since_s <= one.queued_s <= sent.queued_s
        for one in history.sent.values()
    )


def _places(history: KeyedHistory, sent: Sent) -> list[tuple[int, int]]:
    return [(place.part.partition, place.offset) for place in history.places[sent.value]]


class EverythingIsProcessed:
    """Whatever was acknowledged, by every group."""

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def check(self, history: KeyedHistory) -> None:
        for group in self._groups:
            lost = history.unprocessed(group)
            if lost:
                history.cluster.violate(f"{group} never got {lost}, which was acknowledged")


class StoredOnce:
    """A record of an idempotent producer is in one place, whichever way it came."""

    def check(self, history: KeyedHistory) -> None:
        for value, places in history.places.items():
            if value not in history.sent:
                history.cluster.violate(f"{value} is in {list(places)}, and nobody sent it")
            elif len(places) > 1:
                history.cluster.violate(f"{value} is stored more than once: in {list(places)}")
