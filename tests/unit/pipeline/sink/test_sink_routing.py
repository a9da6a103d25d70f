"""Where rows go, and which of them cannot go anywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.sink_cluster import FakeCluster

from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.pipeline.columns import HEADERS, TIMESTAMP
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.flaws import Flaw
from goqueue.pipeline.sink.routing import Routed, Router
from goqueue.pipeline.sink.topic_facts import TOPIC_COUNT_MAX, TopicFinder

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int64(),
    "priority": pa.int64(),
    "headers": HEADERS,
    "deliver_at": TIMESTAMP,
    "timestamp": TIMESTAMP,
}


def frame(**columns: list[Any]) -> pa.RecordBatch:  # Any: as Arrow takes them
    return pa.record_batch({name: pa.array(values, TYPES[name]) for name, values in columns.items()})


def router(
    counts: dict[str, int],
    *,
    topic: str | None = None,
    partition: int | None = None,
    is_transactional: bool = True,
    settings: dict[str, dict[str, str]] | None = None,
    first: int = 0,
    makes_topics: bool = False,
) -> Router:
    finder = TopicFinder(FakeCluster(counts, settings or {}), makes_topics)
    return Router(finder, topic, partition, 1_000, is_transactional, first)


def route(by: Router, batch: pa.RecordBatch, size: int = 100) -> Routed:
    return by.route(batch, np.full(len(batch), size, np.int64), now_ms=NOW_MS)


def places(by: Router, routed: Routed) -> list[tuple[str, int] | None]:
    return [None if number < 0 else by.finder.places[number] for number in routed.places.tolist()]


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_key_lands_where_its_topics_partitioner_puts_it(partitioner: Partitioner) -> None:
    keys = [f"user-{number}".encode() for number in range(200)]
    by = router({"t": 7}, topic="t", settings={"t": {"partitioner": partitioner.value}})
    found = places(by, route(by, frame(key=keys, value=keys)))
    assert found == [("t", partition_for_key(partitioner, key, 7)) for key in keys]


def test_topics_with_other_partitioners_and_counts_mix_in_one_frame() -> None:
    settings = {"a": {"partitioner": "murmur2"}, "b": {"partitioner": "crc32"}}
    by = router({"a": 5, "b": 3, "c": 5}, settings=settings)
    names = [("a", "b", "c")[number % 3] for number in range(90)]
    keys = [str(number).encode() for number in range(90)]
    kinds = {"a": (Partitioner.MURMUR2, 5), "b": (Partitioner.CRC32, 3), "c": (Partitioner.MURMUR3, 5)}
    wanted = []
    for name, key in zip(names, keys, strict=True):
        kind, count = kinds[name]
        wanted.append((name, partition_for_key(kind, key, count)))
    assert places(by, route(by, frame(key=keys, value=keys, topic=names))) == wanted


def test_named_partition_is_kept_and_a_null_one_goes_by_key() -> None:
    by = router({"t": 4}, topic="t")
    found = places(by, route(by, frame(key=[b"k", b"k"], value=[b"1", b"2"], partition=[3, None])))
    assert found == [("t", 3), ("t", partition_for_key(Partitioner.MURMUR3, b"k", 4))]


def test_partition_option_is_for_rows_that_name_none() -> None:
    by = router({"t": 4}, topic="t", partition=1)
    rows = frame(key=[b"k", b"k"], value=[b"1", b"2"], partition=[3, None])
    assert places(by, route(by, rows)) == [("t", 3), ("t", 1)]
    assert places(by, route(by, frame(value=[b"1"]))) == [("t", 1)]


def test_rows_without_keys_fill_one_partition_after_the_other() -> None:
    by = router({"t": 3}, topic="t", first=1)
    found = places(by, route(by, frame(value=[b""] * 40)))
    assert found == [("t", 1)] * 10 + [("t", 2)] * 10 + [("t", 0)] * 10 + [("t", 1)] * 10
    assert places(by, route(by, frame(value=[b""] * 2))) == [("t", 2)] * 2


def test_topic_option_overrides_the_column() -> None:
    by = router({"t": 1, "u": 1}, topic="t")
    assert places(by, route(by, frame(value=[b"", b""], topic=["u", None]))) == [("t", 0)] * 2


def test_row_without_a_topic_or_with_one_that_is_not_there_is_flawed() -> None:
    by = router({"t": 1})
    routed = route(by, frame(value=[b""] * 4, topic=["t", None, "nowhere", "t"]))
    assert routed.flaws.tolist() == [Flaw.NONE, Flaw.NO_TOPIC, Flaw.UNKNOWN_TOPIC, Flaw.NONE]
    assert places(by, routed) == [("t", 0), None, None, ("t", 0)]


def test_frame_of_rows_without_any_topic_is_all_flawed() -> None:
    routed = route(router({"t": 1}), frame(value=[b""] * 2, topic=[None, None]))
    assert routed.flaws.tolist() == [Flaw.NO_TOPIC] * 2


def test_topics_are_created_where_that_is_allowed_and_their_names_are_legal() -> None:
    by = router({}, makes_topics=True)
    routed = route(by, frame(value=[b""] * 3, topic=["new", "not legal", "__internal"]))
    assert routed.flaws.tolist() == [Flaw.NONE, Flaw.UNKNOWN_TOPIC, Flaw.UNKNOWN_TOPIC]


def test_topic_that_appears_during_the_task_is_not_looked_for_again() -> None:
    by = router({"t": 1})
    route(by, frame(value=[b""], topic=["later"]))
    assert isinstance(by.finder.source, FakeCluster)
    by.finder.source.partition_counts["later"] = 1
    assert route(by, frame(value=[b""], topic=["later"])).flaws.tolist() == [Flaw.UNKNOWN_TOPIC]


def test_more_topics_than_anybody_means_are_refused() -> None:
    names = [f"topic-{number}" for number in range(TOPIC_COUNT_MAX + 1)]
    with pytest.raises(PipelineError, match="is the column 'topic' the right one"):
        route(router({}), frame(value=[b""] * len(names), topic=names))


def test_partition_that_the_topic_does_not_have_is_a_flaw() -> None:
    routed = route(router({"t": 4}, topic="t"), frame(value=[b""] * 3, partition=[4, -1, 3]))
    assert routed.flaws.tolist() == [Flaw.PARTITION, Flaw.PARTITION, Flaw.NONE]


def test_priority_is_one_of_five() -> None:
    routed = route(router({"t": 1}, topic="t"), frame(value=[b""] * 5, priority=[0, 4, 5, -1, None]))
    assert routed.flaws.tolist() == [Flaw.NONE, Flaw.NONE, Flaw.PRIORITY, Flaw.PRIORITY, Flaw.NONE]


def test_header_without_a_name_is_a_flaw() -> None:
    headers = [
        [{"key": "a", "value": None}],
        None,
        [],
        [{"key": "a", "value": b"1"}, {"key": None, "value": b"1"}],
        [None],
    ]
    routed = route(router({"t": 1}, topic="t"), frame(value=[b""] * 5, headers=headers))
    assert routed.flaws.tolist() == [Flaw.NONE, Flaw.NONE, Flaw.NONE, Flaw.HEADERS, Flaw.HEADERS]


def test_delayed_row_is_no_part_of_a_transaction() -> None:
    soon, past = NOW + timedelta(milliseconds=1), NOW - timedelta(hours=1)
    due = str(NOW_MS + 5).encode()
    headers = [
        None,
        None,
        None,
        [{"key": "gq-deliver-at", "value": due}],
        [{"key": "gq-deliver-at", "value": b"x"}],
    ]
    rows = frame(value=[b""] * 5, deliver_at=[soon, past, None, None, None], headers=headers)
    wanted = [Flaw.DELIVER_AT, Flaw.NONE, Flaw.NONE, Flaw.DELIVER_AT, Flaw.HEADERS]
    assert route(router({"t": 1}, topic="t"), rows).flaws.tolist() == wanted


def test_delayed_row_without_a_transaction_waits_as_long_as_its_topic_allows() -> None:
    by = router({"t": 1}, topic="t", is_transactional=False, settings={"t": {"delay.max.ms": "60000"}})
    rows = frame(value=[b""] * 2, deliver_at=[NOW + timedelta(minutes=1), NOW + timedelta(minutes=2)])
    assert route(by, rows).flaws.tolist() == [Flaw.NONE, Flaw.DELIVER_AT]


def test_timestamp_is_as_far_from_now_as_the_topic_allows() -> None:
    settings = {"t": {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "1000"}}
    minute, ahead = timedelta(minutes=1), timedelta(seconds=2)
    times = [NOW, NOW - minute, NOW - 2 * minute, NOW + ahead, None]
    routed = route(router({"t": 1}, topic="t", settings=settings), frame(value=[b""] * 5, timestamp=times))
    assert routed.flaws.tolist() == [Flaw.NONE, Flaw.NONE, Flaw.TIMESTAMP, Flaw.TIMESTAMP, Flaw.NONE]


def test_record_that_no_batch_can_hold_is_a_flaw() -> None:
    by = router({"t": 1}, topic="t", settings={"t": {"max.message.bytes": "1024"}})
    assert route(by, frame(value=[b""]), size=960).flaws.tolist() == [Flaw.NONE]
    assert route(by, frame(value=[b""]), size=961).flaws.tolist() == [Flaw.TOO_LARGE]
