"""Batches over topics in memory: bounds, losses, tasks, schema, filters. Without Spark's JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tests.support.topics_in_memory import TopicsInMemory

from goqueue.pipeline.data_source import GoQueueSource
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.source.batch_reader import BatchReader, FilteringBatchReader
from goqueue.pipeline.source.options import Mode, source_options
from goqueue.pipeline.source.tasks import ReadTask
from goqueue.pipeline.span import Chunk, Place, Span

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}


@pytest.fixture
def topics() -> TopicsInMemory:
    found = TopicsInMemory(a=2, b=1, c=1)
    for partition, counts in ((0, (10, 10, 10)), (1, (5, 5))):
        for index, count in enumerate(counts):
            found.add("a", partition, count, timestamp_ms=1_000 * (index + 1))
    found.add("b", 0, 4, timestamp_ms=5_000)
    return found


def reader(topics: TopicsInMemory, given: dict[str, str]) -> BatchReader:
    options = source_options(NEEDED | given, Mode.BATCH)
    kind = FilteringBatchReader if options.pushes_filters else BatchReader
    return kind(replace(options, columns=("topic", "partition", "offset", "value")), lambda access: topics)


def spans(topics: TopicsInMemory, **given: str) -> list[Span]:
    return [span for task in reader(topics, given).partitions() for span in tasks_spans(task)]


def tasks_spans(task: InputPartition) -> tuple[Span, ...]:
    assert isinstance(task, ReadTask)
    return task.spans


def test_batch_is_all_there_is_by_default(topics: TopicsInMemory) -> None:
    assert spans(topics) == [Span("a", 0, 0, 30), Span("a", 1, 0, 10)]
    assert not topics.is_open


def test_subscription_by_pattern_and_by_partition(topics: TopicsInMemory) -> None:
    given = {"bootstrap.servers": "h:1"}
    by_pattern = BatchReader(
        source_options(given | {"subscribePattern": "[bc]|aa"}, Mode.BATCH), lambda access: topics
    )
    assert [tasks_spans(task) for task in by_pattern.partitions()] == [(Span("b", 0, 0, 4),)]
    by_partition = BatchReader(
        source_options(given | {"assign": '{"a": [1], "b": [0]}'}, Mode.BATCH), lambda access: topics
    )
    assert [tasks_spans(task) for task in by_partition.partitions()] == [
        (Span("a", 1, 0, 10), Span("b", 0, 0, 4))
    ]
    wrong = BatchReader(source_options(given | {"assign": '{"a": [2]}'}, Mode.BATCH), lambda access: topics)
    with pytest.raises(PipelineError, match="assign has partition 2 of topic a, which has 2"):
        wrong.partitions()


def test_topic_that_does_not_exist_is_named_with_those_that_do(topics: TopicsInMemory) -> None:
    with pytest.raises(PipelineError, match="there is no topic ordres; there are a, b, c"):
        spans(topics, subscribe="ordres,a")


def test_bounds_by_offset(topics: TopicsInMemory) -> None:
    found = spans(
        topics, startingOffsets='{"a": {"0": 3, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 4}}'
    )
    assert found == [Span("a", 0, 3, 30), Span("a", 1, 0, 4)]


def test_bounds_by_time(topics: TopicsInMemory) -> None:
    assert spans(topics, startingTimestamp="1500", endingTimestamp="2500") == [
        Span("a", 0, 10, 20),
        Span("a", 1, 5, 10),
    ]
    by_place = spans(
        topics,
        startingOffsetsByTimestamp='{"a": {"0": 3000, "1": 0}}',
        endingOffsetsByTimestamp='{"a": {"0": 9999, "1": 2000}}',
    )
    assert by_place == [Span("a", 0, 20, 30), Span("a", 1, 0, 5)]


def test_time_that_no_record_reaches_is_an_error_or_the_end(topics: TopicsInMemory) -> None:
    with pytest.raises(OptionError, match=r"a-1 has no record at or after 2500 to begin at.*Strategy=latest"):
        spans(topics, startingTimestamp="2500")
    assert spans(topics, startingTimestamp="2500", startingOffsetsByTimestampStrategy="latest") == [
        Span("a", 0, 20, 30)
    ]


def test_times_that_lie_backward_give_nothing(topics: TopicsInMemory) -> None:
    assert spans(topics, startingTimestamp="2000", endingTimestamp="1000") == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": '{"a": {"0": 3}}'}, "startingOffsets must have every partition that is read and lacks a-1"),
        ({"startingOffsets": '{"a": {"0": 0, "1": 0, "7": 0}}'}, "startingOffsets has a-7, which the query does not read"),
        ({"startingOffsets": '{"a": {"0": 31, "1": 0}}'}, "startingOffsets has offset 31 for a-0, which ends at 30"),
        ({"endingOffsets": '{"a": {"0": 99, "1": 0}}'}, "endingOffsets has offset 99 for a-0, which ends at 30"),
        ({"startingOffsets": '{"a": {"0": 9, "1": 0}}', "endingOffsets": '{"a": {"0": 5, "1": 0}}'}, "from 9 to 5, which is backward"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 5}}'}, "endingOffsetsByTimestamp must have every partition that is read and lacks a-1"),
    ],
)  # fmt: skip
def test_offsets_that_cannot_be_are_refused(topics: TopicsInMemory, given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        spans(topics, **given)
    assert told in str(caught.value)


def test_records_that_aged_out_are_named_or_warned_of(
    topics: TopicsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    topics.age_out("a", 0, 10)
    assert spans(topics)[0] == Span("a", 0, 10, 30)
    start = '{"a": {"0": 3, "1": 0}}'
    with pytest.raises(DataLoss, match=r"offsets \[3, 10\) of a-0 are gone.*failOnDataLoss=false"):
        spans(topics, startingOffsets=start)
    assert spans(topics, startingOffsets=start, failOnDataLoss="false")[0] == Span("a", 0, 10, 30)
    assert "offsets [3, 10) of a-0 are gone" in caplog.text


def test_committed_reader_ends_at_the_last_stable_offset(topics: TopicsInMemory) -> None:
    topics.stable[Place("a", 0)] = 17
    assert spans(topics)[0] == Span("a", 0, 0, 17)
    assert spans(topics, isolation="read_uncommitted")[0] == Span("a", 0, 0, 30)


def test_tasks_are_as_many_as_asked_for(topics: TopicsInMemory) -> None:
    assert len(reader(topics, {}).partitions()) == 1
    assert len(reader(topics, {"minPartitions": "8"}).partitions()) == 8
    assert len(reader(topics, {"maxRecordsPerPartition": "3"}).partitions()) == 14
    assert len(reader(topics, {"maxRecordsPerPartition": "3", "maxPartitions": "2"}).partitions()) == 14


def test_tasks_read_exactly_their_rows_wherever_they_are_cut(topics: TopicsInMemory) -> None:
    batches = reader(topics, {"minPartitions": "7"})
    rows = [
        row
        for task in pickle.loads(pickle.dumps(batches.partitions()))  # noqa: S301
        for batch in batches.read(task)
        for row in batch.to_pylist()
    ]
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (partition, offset) for partition, count in ((0, 30), (1, 10)) for offset in range(count)
    ]
    assert rows[7]["value"] == b"7"
    assert {row["topic"] for row in rows} == {"a"}


def test_empty_plan_has_no_rows(topics: TopicsInMemory) -> None:
    empty = reader(topics, {"subscribe": "c"})
    assert empty.partitions() == []
    assert list(empty.read(InputPartition(None))) == []


def test_retention_that_overtakes_a_task_fails_it_or_is_passed_over(
    topics: TopicsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = reader(topics, {}), reader(topics, {"failOnDataLoss": "false"})
    (strict_task,), (lenient_task,) = strict.partitions(), lenient.partitions()
    topics.age_out("a", 0, 20)
    with pytest.raises(DataLoss, match="offset 0 of a-0 is gone"):
        list(strict.read(strict_task))
    offsets = [row["offset"] for batch in lenient.read(lenient_task) for row in batch.to_pylist()]
    assert offsets == [*range(20, 30), *range(10)]
    assert "offset 0 of a-0 is gone" in caplog.text


class Damaged(TopicsInMemory):
    """Its third batch cannot be read, and by then retention has taken the first."""

    def read(self, span: Span, *, committed: bool) -> Iterator[Chunk]:
        for index, chunk in enumerate(super().read(span, committed=committed)):
            if index == 2:
                self.age_out("a", 0, 10)
                raise DataLoss("a-0 is damaged in the batch at offset 20")
            yield chunk


def test_loss_that_is_not_retentions_fails_the_task_in_any_case() -> None:
    topics = Damaged(a=1)
    for _ in range(3):
        topics.add("a", 0, 10)
    lenient = reader(topics, {"failOnDataLoss": "false"})
    (task,) = lenient.partitions()
    with pytest.raises(DataLoss, match="a-0 is damaged in the batch at offset 20"):
        list(lenient.read(task))
    assert len(topics.reads) == 1


def test_limits_of_streams_are_ignored_with_a_word(
    topics: TopicsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    spans(topics, **{"maxOffsetsPerTrigger": "3", "kafka.group.id": "g"})
    assert "a batch takes no notice of maxOffsetsPerTrigger, group.id" in caplog.text


def schema(*fields: tuple[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])  # type: ignore[arg-type] # of Spark's types


def test_users_schema_is_a_projection() -> None:
    source = GoQueueSource(NEEDED)
    chosen = source.reader(schema(("value", BinaryType()), ("offset", LongType())))
    assert isinstance(chosen, BatchReader)
    assert chosen._options.columns == ("value", "offset")
    with pytest.raises(OptionError, match="the schema has a column colour; a topic has key, value"):
        source.reader(schema(("colour", StringType())))
    with pytest.raises(OptionError, match="the schema has column value as string; it is binary"):
        source.streamReader(schema(("value", StringType())))


def test_schema_follows_the_columns_and_checks_what_it_can() -> None:
    assert (
        GoQueueSource({**NEEDED, "columns": "key,timestamp"}).schema()
        == "`key` binary, `timestamp` timestamp"
    )
    with pytest.raises(OptionError, match="one of subscribe, subscribePattern and assign is needed"):
        GoQueueSource({"bootstrap.servers": "h:1"}).schema()


def test_only_a_source_that_was_asked_to_takes_filters() -> None:
    columns = schema(("value", BinaryType()))
    assert type(GoQueueSource(NEEDED).reader(columns)) is BatchReader
    assert type(GoQueueSource({**NEEDED, "pushdown": "true"}).reader(columns)) is FilteringBatchReader


TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)
ALL = [Span("a", 0, 0, 30), Span("a", 1, 0, 10), Span("b", 0, 0, 4)]


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("pushed", "left", "rest_count"),
    [
        ([EqualTo(TOPIC, "b")], [ALL[2]], 0),
        ([EqualNullSafe(TOPIC, "b"), IsNotNull(TOPIC)], [ALL[2]], 0),
        ([IsNull(TOPIC)], [], 0),
        ([Not(EqualTo(TOPIC, "b"))], ALL[:2], 0),
        ([In(TOPIC, ("b", "z"))], [ALL[2]], 0),
        ([In(TOPIC, ("b", None))], ALL, 1),
        ([EqualTo(TOPIC, None)], ALL, 1),
        ([StringStartsWith(TOPIC, "a")], ALL[:2], 0),
        ([StringEndsWith(TOPIC, "b")], [ALL[2]], 0),
        ([Not(StringContains(TOPIC, "b"))], ALL[:2], 0),
        ([GreaterThan(PARTITION, 0)], [ALL[1]], 0),
        ([LessThan(PARTITION, 1), EqualTo(TOPIC, "a")], [ALL[0]], 0),
        ([GreaterThanOrEqual(PARTITION, 1)], [ALL[1]], 0),
        ([LessThanOrEqual(PARTITION, 0)], [ALL[0], ALL[2]], 0),
        ([EqualTo(PARTITION, 1.0)], ALL, 1),
        ([EqualTo(OFFSET, 7)], [Span("a", 0, 7, 8), Span("a", 1, 7, 8)], 0),
        ([GreaterThan(OFFSET, 7), LessThanOrEqual(OFFSET, 12)], [Span("a", 0, 8, 13), Span("a", 1, 8, 10)], 0),
        ([GreaterThanOrEqual(OFFSET, 9), LessThan(OFFSET, 10), IsNotNull(OFFSET)], [Span("a", 0, 9, 10), Span("a", 1, 9, 10)], 0),
        ([In(OFFSET, (3, 1))], [Span(*s.place, 1, 4) for s in ALL], 1),
        ([Not(EqualTo(OFFSET, 3))], ALL, 1),
        ([LessThan(OFFSET, -5)], [], 0),
        ([GreaterThanOrEqual(TIMESTAMP, moment(2))], [Span("a", 0, 10, 30), Span("a", 1, 5, 10), ALL[2]], 1),
        ([EqualTo(TIMESTAMP, moment(3))], [Span("a", 0, 20, 30), ALL[2]], 1),
        ([In(TIMESTAMP, (moment(9), moment(3)))], [Span("a", 0, 20, 30), ALL[2]], 1),
        ([GreaterThan(TIMESTAMP, moment(99))], [], 1),
        ([LessThan(TIMESTAMP, moment(2))], ALL, 1),
        ([GreaterThan(TIMESTAMP, datetime(2020, 1, 1))], ALL, 1),  # noqa: DTZ001 # a moment of no time zone
        ([EqualTo(("value",), b"x")], ALL, 1),
        ([EqualTo(("headers", "key"), "x")], ALL, 1),
    ],
)  # fmt: skip
def test_filters_narrow_spans(
    topics: TopicsInMemory, pushed: list[Filter], left: list[Span], rest_count: int
) -> None:
    filtering = reader(topics, {"subscribe": "a,b,c", "pushdown": "true"})
    assert isinstance(filtering, FilteringBatchReader)
    rest = list(filtering.pushFilters(pushed))
    assert len(rest) == rest_count
    assert all(any(one is given for given in pushed) for one in rest)
    narrowed: Iterable[InputPartition] = pickle.loads(pickle.dumps(filtering.partitions()))  # noqa: S301
    assert [span for task in narrowed for span in tasks_spans(task)] == left
