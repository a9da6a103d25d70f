"""Which topic and partition each row of a window goes to.

The partition is the one that the row names; else its key's, by the hash that the topic itself is set to, so that a row lands
where the same key lands that comes by REST or from another client; else, for rows without a key, one partition after the
other, with a whole batch for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goqueue.pipeline.arrow.encode import partition_of_keys
from goqueue.pipeline.sink.flaws import (
    Flaw,
    Flaws,
    mark,
    mark_delays,
    mark_headers,
    mark_priorities,
    mark_timestamps,
)
from goqueue.pipeline.sink.rows import Longs, column_of, texts_of, whole_numbers
from goqueue.pipeline.sink.topic_facts import TopicFacts, TopicFinder

BATCH_OVERHEAD_BYTES: Final = 64  # the header of a batch, and a little
NOWHERE: Final = -1

Codes = npt.NDArray[np.int32]


class Routed(NamedTuple):
    """Of each row: its place, or -1; and its flaw, or 0."""

    places: Codes
    flaws: Flaws


class _Topics(NamedTuple):
    """Of each row the number of its topic, or -1; and the topics by that number, None where there is no such."""

    codes: Codes
    facts: list[TopicFacts | None]
    is_one: bool = False  # every row has the same

    def spread(self, numbers: list[int]) -> Longs:
        """A number of each topic, for each row; 0 for rows without a topic. All rows of one topic share one number."""
        if self.is_one:
            return np.broadcast_to(np.int64(numbers[0]), len(self.codes))
        return np.array([*numbers, 0], np.int64)[self.codes]


@dataclass(slots=True)
class Router:
    """For one task. `first` differs from task to task, so that rows without keys do not all begin with partition 0."""

    finder: TopicFinder
    topic: str | None  # for all rows, whatever their column says
    partition: int | None  # for rows that name none
    batch_bytes: int
    is_transactional: bool
    first: int = 0
    _turns: dict[str, int] = field(default_factory=dict)

    def route(self, batch: pa.RecordBatch, sizes: Longs, *, now_ms: int) -> Routed:
        flaws: Flaws = np.zeros(len(batch), np.uint8)
        topics = self._topics(batch)
        mark(flaws, topics.codes == NOWHERE, Flaw.NO_TOPIC)
        is_known = np.array([facts is not None for facts in topics.facts] + [True])[topics.codes]
        mark(flaws, ~is_known, Flaw.UNKNOWN_TOPIC)
        counts = topics.spread([facts.partition_count if facts else 0 for facts in topics.facts])
        partitions, is_named = self._named_partitions(batch)
        mark(flaws, is_named & ((partitions < 0) | (partitions >= counts)), Flaw.PARTITION)
        self._mark_content(flaws, batch, topics, sizes, now_ms)
        is_open = ~is_named & (flaws == Flaw.NONE)
        if is_open.any():
            self._by_key(batch, topics, partitions, is_open)
            self._in_turn(topics, partitions, is_open & (partitions < 0), sizes)
        first_places = topics.spread([facts.first_place if facts else 0 for facts in topics.facts])
        places = np.where(flaws == Flaw.NONE, first_places + partitions, NOWHERE).astype(np.int32)
        return Routed(places, flaws)

    def _topics(self, batch: pa.RecordBatch) -> _Topics:
        if self.topic is not None:
            return _Topics(np.zeros(len(batch), np.int32), self.finder.find_all([self.topic]), is_one=True)
        column = column_of(batch, "topic")
        if column is None:
            return _Topics(np.full(len(batch), NOWHERE, np.int32), [])
        encoded = column.dictionary_encode()
        codes: Codes = encoded.indices.fill_null(NOWHERE).to_numpy(zero_copy_only=False).astype(np.int32)
        facts = self.finder.find_all([name or "" for name in texts_of(encoded.dictionary)])
        return _Topics(codes, facts, is_one=len(facts) == 1 and not column.null_count)

    def _named_partitions(self, batch: pa.RecordBatch) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """-1 where a row names none."""
        column = column_of(batch, "partition")
        if column is None:
            index = NOWHERE if self.partition is None else self.partition
            return np.full(len(batch), index, np.int64), np.full(len(batch), index != NOWHERE)
        partitions, is_named = whole_numbers(column)
        if self.partition is not None:
            return np.where(is_named, partitions, self.partition), np.ones(len(batch), np.bool_)
        return np.where(is_named, partitions, NOWHERE), is_named

    def _mark_content(
        self, flaws: Flaws, batch: pa.RecordBatch, topics: _Topics, sizes: Longs, now_ms: int
    ) -> None:
        settings = [facts.settings if facts else None for facts in topics.facts]
        mark_priorities(flaws, batch)
        mark_headers(flaws, batch)
        mark_delays(
            flaws,
            batch,
            now_ms=now_ms,
            delay_ms_max=topics.spread([one.delay_max_ms if one else 0 for one in settings]),
            is_transactional=self.is_transactional,
        )
        mark_timestamps(
            flaws,
            batch,
            now_ms=now_ms,
            before_ms_max=topics.spread(
                [one.message_timestamp_before_max_ms if one else 0 for one in settings]
            ),
            after_ms_max=topics.spread(
                [one.message_timestamp_after_max_ms if one else 0 for one in settings]
            ),
        )
        bytes_max = topics.spread([one.max_message_bytes if one else 0 for one in settings])
        mark(flaws, sizes + BATCH_OVERHEAD_BYTES > bytes_max, Flaw.TOO_LARGE)

    def _by_key(
        self, batch: pa.RecordBatch, topics: _Topics, partitions: Longs, is_open: npt.NDArray[np.bool_]
    ) -> None:
        """Topics that hash alike and have as many partitions are done together."""
        keys = column_of(batch, "key")
        if keys is None:
            return
        alike: dict[tuple[str, int], list[int]] = {}
        for code, facts in enumerate(topics.facts):
            if facts is not None:
                alike.setdefault((facts.settings.partitioner.value, facts.partition_count), []).append(code)
        for (partitioner, count), codes in alike.items():
            hashed = partition_of_keys(keys, partitioner, count)
            if len(alike) == 1:
                np.copyto(partitions, hashed, where=is_open)
            else:
                np.copyto(partitions, hashed, where=is_open & np.isin(topics.codes, codes))

    def _in_turn(
        self, topics: _Topics, partitions: Longs, is_keyless: npt.NDArray[np.bool_], sizes: Longs
    ) -> None:
        rows = np.flatnonzero(is_keyless)
        for code in np.unique(topics.codes[rows]):
            facts = topics.facts[code]
            if facts is None:
                continue
            own = rows[topics.codes[rows] == code]
            turn = self._turns.get(facts.name, self.first)
            turns = turn + (np.cumsum(sizes[own]) - sizes[own]) // self.batch_bytes
            partitions[own] = turns % facts.partition_count
            self._turns[facts.name] = int(turns[-1]) + 1
