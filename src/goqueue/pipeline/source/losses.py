"""Records that were to be read and are not there: found before they are read, named, and fatal or not as the user chose.

A stream goes on from what its checkpoint says. Since then retention may have taken records, a topic may have been deleted or made
again, or the checkpoint may be another query's. Offsets that compaction or transactions left empty are none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.source.offsets import Offsets
from goqueue.pipeline.source.options import SourceOptions
from goqueue.pipeline.span import Place, Span, Transport

LOG = logging.getLogger("goqueue.pipeline.source")
_TOLD_MAX = 1_000
_SHOWN_MAX = 10
_HINT = "with failOnDataLoss=false the query warns and goes on with what is there"


class Losses:
    """Fails or warns, once for each loss."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[str] = set()

    def report(self, sentence: str) -> None:
        if self._fails:
            raise DataLoss(f"{sentence}; {_HINT}")
        if sentence not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(sentence)
            LOG.warning("records are gone and the query goes on: %s", sentence)


def carry_on(
    known: Offsets, latest: Mapping[Place, int], transport: Transport, options: SourceOptions, losses: Losses
) -> Offsets:
    """Where each partition of `latest` goes on from (`at`), and which of them do not continue what is known (`begun`)."""
    _report_gone([place for place in known.at if place not in latest], known, transport, options, losses)
    begins = {place: known.at[place] for place in latest if place in known.at}
    begun = transport.earliest([place for place in latest if place not in known.at])
    ahead = [place for place, begin in begins.items() if begin > latest[place]]
    begun |= _begin_again(ahead, begins, transport, options, losses)
    behind = [place for place, begin in begins.items() if begin < latest[place]]
    for place, earliest in _asked(transport, behind).items():
        if begins[place] < earliest:
            losses.report(_aged_out(Span(*place, begins[place], earliest)))
            begun[place] = earliest
    return Offsets(begins | begun, begun)


def readable(
    spans: Sequence[Span], ends: Mapping[Place, int], transport: Transport, losses: Losses
) -> list[Span]:
    """The parts of the spans that are still there. What a replay finds gone, or backward, is a loss. `ends` is how far
    partitions are known to go; of a span that goes beyond it is asked."""
    counts = transport.topics() if spans else {}
    there = []
    for span in spans:
        if span.partition >= counts.get(span.topic, 0):
            losses.report(
                f"{_name(span.place)} is gone, and offsets [{span.start}, {span.end}) of it were to be read"
            )
        elif span.start > span.end:
            losses.report(
                f"{_name(span.place)} was to be read from {span.start} to {span.end}, which is backward: "
                "the topic was made again, or the checkpoint belongs to another one"
            )
        else:
            there.append(span)
    there = _reached(there, ends, transport, losses)
    earliest = _asked(transport, [span.place for span in there])
    kept = []
    for span in there:
        first = earliest[span.place]
        if span.start < first:
            losses.report(_aged_out(span._replace(end=min(first, span.end))))
        if max(span.start, first) < span.end:
            kept.append(span._replace(start=max(span.start, first)))
    return kept


def _reached(
    spans: Sequence[Span], ends: Mapping[Place, int], transport: Transport, losses: Losses
) -> list[Span]:
    """Without those that end behind their partition, for these are offsets of a topic that is no more. What there is of the new
    one is the next batch's, from its beginning."""
    beyond = [span.place for span in spans if span.end > ends.get(span.place, 0)]
    watermarks = transport.latest(beyond, committed=False) if beyond else {}
    reached = []
    for span in spans:
        if span.end > watermarks.get(span.place, span.end):
            losses.report(
                f"{_name(span.place)} ends at {watermarks[span.place]}, and offsets [{span.start}, {span.end}) of it were to be "
                "read: the topic was made again, or the checkpoint belongs to another one"
            )
        else:
            reached.append(span)
    return reached


def _report_gone(
    gone: Sequence[Place], known: Offsets, transport: Transport, options: SourceOptions, losses: Losses
) -> None:
    if not gone:
        return
    counts = transport.topics()
    covers = options.subscription.covers
    exists = {place: place.partition < counts.get(place.topic, 0) for place in sorted(gone)}
    strange = [place for place in exists if exists[place] or not covers(place.topic)]
    if strange:
        shown = dict.fromkeys(_name(place) if covers(place.topic) else place.topic for place in strange)
        losses.report(
            f"the checkpoint has offsets of {', '.join([*shown][:_SHOWN_MAX])}, which this query does not read: it belongs to "
            "another query, or the subscription was changed; use another checkpointLocation"
        )
    for place in [place for place in exists if place not in strange][:_SHOWN_MAX]:
        losses.report(f"{_name(place)} is gone; the query had read it up to {known.at[place]}")


def _begin_again(
    ahead: Sequence[Place],
    begins: Mapping[Place, int],
    transport: Transport,
    options: SourceOptions,
    losses: Losses,
) -> dict[Place, int]:
    """Partitions that end before what the query has read of them. Behind the last stable offset but not behind the high
    watermark it is no loss: the query read uncommitted records before, and waits."""
    if not ahead:
        return {}
    watermarks = transport.latest(ahead, committed=False)
    lost = [place for place in ahead if begins[place] > watermarks[place]]
    for place in lost:
        losses.report(
            f"{_name(place)} ends at {watermarks[place]}, but the query had read it up to {begins[place]}: the "
            "topic was made again, or the checkpoint belongs to another one; use another checkpointLocation"
        )
    return transport.earliest(lost) if lost else {}


def _asked(transport: Transport, places: Sequence[Place]) -> dict[Place, int]:
    return transport.earliest(places) if places else {}


def _aged_out(span: Span) -> str:
    return (
        f"offsets [{span.start}, {span.end}) of {_name(span.place)} are gone: "
        "they were deleted, or were older or more than the topic keeps"
    )


def _name(place: Place) -> str:
    return f"{place.topic}-{place.partition}"
