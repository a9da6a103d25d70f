"""What becomes of rows that cannot be written: the write fails and says which, or they go to a dead letter topic, or they
are left out and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from goqueue.model.partitioner import partition_for_key
from goqueue.model.priority import LANE_COUNT
from goqueue.model.record import NewRecord
from goqueue.pipeline.errors import BadRow
from goqueue.pipeline.sink.dead_letters import dead_letter, runs
from goqueue.pipeline.sink.flaws import Flaw, counts_by_reason, shown
from goqueue.pipeline.sink.options import TOPIC_MARK, BadRows, SinkOptions
from goqueue.pipeline.sink.outlet import Outlet
from goqueue.pipeline.sink.routing import BATCH_OVERHEAD_BYTES, Routed
from goqueue.pipeline.sink.rows import Longs, Row, row_of
from goqueue.pipeline.sink.topic_facts import TopicFacts, TopicFinder
from goqueue.pipeline.span import Place

_TOPICLESS: Final = (Flaw.NO_TOPIC, Flaw.UNKNOWN_TOPIC)


class _Bad(NamedTuple):
    """A row, the topic that it was for, and what is wrong with it."""

    row: Row
    topic: str | None
    flaw: Flaw
    error: str


@dataclass(slots=True)
class BadRowPolicy:
    """Of one task. `writer` names the job or stream in dead letters."""

    options: SinkOptions
    finder: TopicFinder
    writer: str
    counts: Counter[str] = field(default_factory=Counter)  # by reason

    def take(
        self,
        batch: pa.RecordBatch,
        routed: Routed,
        problems: Mapping[int, str],
        sizes: Longs,
        outlet: Outlet,
        *,
        now_ms: int,
    ) -> None:
        """The bad rows of a window, if there are any. `problems` is what the encoder says of some of them."""
        indices = np.flatnonzero(routed.flaws).tolist()
        if not indices:
            return
        found = (self._told(batch, routed, problems, sizes, index) for index in indices)
        if self.options.bad_rows is BadRows.FAIL:
            first = next(found)
            raise BadRow(
                f"a row for topic {shown(first.topic)} with key {shown(first.row.get('key'))} cannot be written: "
                f"{first.error}. {len(indices)} of these {len(batch)} rows cannot; badRows=dead_letter or "
                "badRows=skip writes the others"
            )
        self.counts.update(counts_by_reason(routed.flaws))
        if self.options.bad_rows is BadRows.DEAD_LETTER:
            self._bury(found, outlet, now_ms)

    def _told(
        self, batch: pa.RecordBatch, routed: Routed, problems: Mapping[int, str], sizes: Longs, index: int
    ) -> _Bad:
        row = row_of(batch, index)
        topic = self.options.topic or row.get("topic")
        facts = self.finder.find_all([topic])[0] if topic is not None else None
        flaw = Flaw(int(routed.flaws[index]))
        if row.get("partition") is None:
            row = {**row, "partition": self.options.partition}
        if flaw is Flaw.OTHER:
            return _Bad(row, topic, flaw, problems[index])
        error = sentence(flaw, row, topic, facts, int(sizes[index]), self.options.is_transactional)
        return _Bad(row, topic, flaw, error)

    def _bury(self, found: Iterable[_Bad], outlet: Outlet, now_ms: int) -> None:
        letters: dict[Place, list[NewRecord]] = {}
        for row, topic, flaw, error in found:
            facts = self._dead_letter_facts(topic, flaw, error)
            letter = dead_letter(
                row,
                topic or "",
                reason=flaw.reason,
                error=error,
                writer=self.writer,
                now_ms=now_ms,
                bytes_max=facts.settings.max_message_bytes - BATCH_OVERHEAD_BYTES,
            )
            letters.setdefault(Place(facts.name, _partition(letter, facts)), []).append(letter)
        for place, records in letters.items():
            facts = self.finder.find_or_make(place.topic)
            bytes_max = min(self.options.batch_bytes, facts.settings.max_message_bytes - BATCH_OVERHEAD_BYTES)
            for run in runs(records, bytes_max):
                outlet.send_records(place, run, now_ms=now_ms)

    def _dead_letter_facts(self, topic: str | None, flaw: Flaw, error: str) -> TopicFacts:
        name = self.options.dead_letter_topic
        if TOPIC_MARK not in name:
            return self.finder.find_or_make(name)
        if topic is None or flaw in _TOPICLESS:
            raise BadRow(
                f"{error}, and so there is no dead letter topic {name!r} for it; set deadLetterTopic to a name without "
                f"{TOPIC_MARK}"
            )
        return self.finder.find_or_make(name.replace(TOPIC_MARK, topic))


def sentence(
    flaw: Flaw, row: Row, topic: str | None, facts: TopicFacts | None, size: int, is_transactional: bool
) -> str:
    """What is wrong, with the value, and what would be right."""
    match flaw:
        case Flaw.NO_TOPIC:
            return "its topic is null; give it one, or all rows one by the option 'topic'"
        case Flaw.UNKNOWN_TOPIC:
            return f"topic {shown(topic)} does not exist; create it, or set createTopics=true"
        case Flaw.PARTITION:
            count = facts.partition_count if facts else 0
            return f"its partition is {row.get('partition')} and topic {topic} has {count}: 0 to {count - 1}"
        case Flaw.PRIORITY:
            return f"its priority is {row.get('priority')}; it must be 0 to {LANE_COUNT - 1}"
        case Flaw.HEADERS:
            return "one of its headers has no name, or a time of delivery that is none; a header is a name and a value"
        case Flaw.DELIVER_AT if is_transactional:
            return (
                f"{_due(row)} is in the future, and a delayed record cannot be part of a transaction; write delayed rows "
                "with guarantee=at_least_once"
            )
        case Flaw.DELIVER_AT:
            delay_ms_max = facts.settings.delay_max_ms if facts else 0
            return f"{_due(row)} is further ahead than delay.max.ms of topic {topic} ({delay_ms_max}) allows"
        case Flaw.TIMESTAMP:
            return (
                f"its timestamp {row.get('timestamp')} is before 1970, or further from now than "
                f"message.timestamp.before.max.ms and message.timestamp.after.max.ms of topic {topic} allow"
            )
        case Flaw.TOO_LARGE:
            bytes_max = facts.settings.max_message_bytes if facts else 0
            return f"it takes up to {size} bytes, and max.message.bytes of topic {topic} is {bytes_max}"
        case Flaw.NONE | Flaw.OTHER:
            return "it cannot be encoded"


def _due(row: Row) -> str:
    due = row.get("deliver_at")
    return "its header gq-deliver-at" if due is None else f"its deliver_at {due}"


def _partition(letter: NewRecord, facts: TopicFacts) -> int:
    if letter.key is None:
        return 0
    return partition_for_key(facts.settings.partitioner, letter.key, facts.partition_count)
