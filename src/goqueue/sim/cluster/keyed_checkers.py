"""What must be true of a topic with `scaling=keyed`, however often its partitions come and go (ADR 35)."""

from __future__ import annotations

from typing import Final, Protocol

from goqueue.sim.cluster.keyed_history import KeyedHistory, Sent

_MOMENT_S: Final = (
    1.5  # within which a request is answered for sure to be in time; see `goqueue.node.scaling.quiet`
)


class KeyedChecker(Protocol):
    def check(self, history: KeyedHistory) -> None: ...


class KeysInOrder:
    """A group processes the records of a key in order, each for the first time: of what was acknowledged before the next was
    sent, and of what was acknowledged within a moment."""

    def check(self, history: KeyedHistory) -> None:
        for group, processed in history.processed.items():
            newest: dict[str, Sent] = {}
            for value in processed:  # in this order
                sent = history.sent[value]
                known = newest.get(sent.key)
                if known is None or sent.number > known.number:
                    newest[sent.key] = sent
                elif _is_promised(sent, known):
                    history.cluster.violate(
                        f"{group} processed {value} {_places(history, sent)} after {known.value} {_places(history, known)}"
                    )


def _is_promised(sent: Sent, later: Sent) -> bool:
    return sent.acked_s <= later.queued_s or sent.acked_s - sent.queued_s <= _MOMENT_S


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
