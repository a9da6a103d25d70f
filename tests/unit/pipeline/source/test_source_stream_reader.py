"""Streams over topics in memory, driven as Spark drives them: the checkpoint is a list of offsets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from tests.support.topics_in_memory import TopicsInMemory

from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import KafkaError, Unreachable, refused
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.source.offsets import FROM, Json, positions
from goqueue.pipeline.source.options import Access, Mode, source_options
from goqueue.pipeline.source.progress import SKIPPED_AFTER_FAILURE, GroupCommits, Progress
from goqueue.pipeline.source.stream_reader import StreamReader
from goqueue.pipeline.source.tasks import ReadTask
from goqueue.pipeline.span import Place, Span

A0, A1 = Place("a", 0), Place("a", 1)


class Query:
    """One run of a query: what Spark would ask a new reader for, and what it would put into its offset log."""

    def __init__(self, topics: TopicsInMemory, log: list[Json] | None = None, **given: str) -> None:
        needed = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}
        if given.keys() & {"assign", "subscribePattern"}:
            del needed["subscribe"]
        self.log = [] if log is None else log
        self.now_s = 0.0
        self.accesses: list[Access] = []
        options = source_options(needed | given, Mode.STREAM)

        def opener(access: Access) -> TopicsInMemory:
            self.accesses.append(access)
            return topics

        self.reader = StreamReader(options, opener, lambda: self.now_s)

    def trigger(self, *, all_available: bool = False) -> bool:
        """Whether there is a batch; it is logged then."""
        limit = ReadAllAvailable() if all_available else self.reader.getDefaultReadLimit()
        start = self.log[-1] if self.log else self.reader.initialOffset()
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        if self.log and json.dumps(end) == json.dumps(start):
            return False
        self.log.append(end)
        return True

    def spans(self, batch: int = -1) -> list[Span]:
        """Of a logged batch, as often as one likes."""
        index = batch % len(self.log)
        start = self.log[index - 1] if index else self.reader.initialOffset()
        tasks = self.reader.partitions(start, self.log[index])
        return [span for task in tasks if isinstance(task, ReadTask) for span in task.spans]

    def offsets(self) -> list[int]:
        start = self.log[-2] if len(self.log) > 1 else self.reader.initialOffset()
        tasks = self.reader.partitions(start, self.log[-1])
        return [
            row["offset"] for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()
        ]


@pytest.fixture
def topics() -> TopicsInMemory:
    found = TopicsInMemory(a=2)
    found.add("a", 0, 10)
    found.add("a", 1, 5)
    return found


def test_latest_is_looked_up_once_and_is_in_the_checkpoint_with_the_first_batch(
    topics: TopicsInMemory,
) -> None:
    query = Query(topics)
    assert query.reader.initialOffset() == {}
    assert query.trigger()
    assert query.log == [{FROM: {"a": {"0": 10, "1": 5}}, "a": {"0": 10, "1": 5}}]
    assert query.spans() == []
    assert not query.trigger()
    topics.add("a", 0, 3)
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 10, 13)]


def test_restart_before_the_first_batch_is_done_reads_from_where_it_began(topics: TopicsInMemory) -> None:
    log: list[Json] = []
    assert Query(topics, log, maxOffsetsPerTrigger="4").trigger()
    topics.add("a", 0, 7)
    again = Query(topics, log, maxOffsetsPerTrigger="4")
    assert again.spans() == []
    assert again.trigger()
    assert again.spans() == [Span("a", 0, 10, 14)]


def test_replay_of_the_first_batch_is_the_same_though_the_log_began_to_age(topics: TopicsInMemory) -> None:
    log: list[Json] = []
    first = Query(topics, log, startingOffsets="earliest")
    assert first.trigger()
    spans = first.spans()
    topics.add("a", 0, 7)
    assert (
        Query(topics, log, startingOffsets="earliest").spans()
        == spans
        == [Span("a", 0, 0, 10), Span("a", 1, 0, 5)]
    )
    topics.age_out("a", 0, 10)
    with pytest.raises(DataLoss, match=r"offsets \[0, 10\) of a-0 are gone"):
        Query(topics, log, startingOffsets="earliest").spans()


def test_query_over_nothing_yet_reads_what_comes_from_its_beginning() -> None:
    topics = TopicsInMemory()
    query = Query(topics, subscribePattern="a.*")
    assert query.trigger()
    assert query.log == [{FROM: {}}]
    assert not query.trigger()
    topics.counts["a"] = 1
    topics.add("a", 0, 3)
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 0, 3)]


def test_partition_that_appears_later_is_read_from_its_beginning(topics: TopicsInMemory) -> None:
    query = Query(topics)
    query.trigger()
    topics.counts["a"] = 3
    topics.add("a", 2, 4)
    topics.add("a", 0, 1)
    assert query.trigger()
    assert query.log[-1] == {FROM: {"a": {"2": 0}}, "a": {"0": 11, "1": 5, "2": 4}}
    assert query.spans() == [Span("a", 0, 10, 11), Span("a", 2, 0, 4)]
    topics.add("a", 2, 1)
    assert query.trigger()
    assert FROM not in query.log[-1]
    assert query.spans() == [Span("a", 2, 4, 5)]


def test_start_may_be_given_by_offset_or_time(topics: TopicsInMemory) -> None:
    topics.add("a", 0, 2, timestamp_ms=9_000)
    by_offset = Query(topics, startingOffsets='{"a": {"0": 7, "1": -1}}')
    assert by_offset.trigger()
    assert by_offset.spans() == [Span("a", 0, 7, 12)]
    by_time = Query(topics, startingTimestamp="8000", startingOffsetsByTimestampStrategy="latest")
    assert by_time.trigger()
    assert by_time.spans() == [Span("a", 0, 10, 12)]
    with pytest.raises(OptionError, match="a-1 has no record at or after 8000"):
        Query(topics, startingTimestamp="8000").trigger()


def test_topic_that_does_not_exist_is_refused_at_the_start(topics: TopicsInMemory) -> None:
    with pytest.raises(PipelineError, match="there is no topic orders; there are a"):
        Query(topics, subscribe="orders").trigger()


def test_rows_are_read_once_each_over_batches_and_restarts(topics: TopicsInMemory) -> None:
    log: list[Json] = []
    seen: list[int] = []
    for _ in range(4):
        query = Query(topics, log, startingOffsets="earliest", maxOffsetsPerTrigger="6")
        while query.trigger():
            seen += query.offsets()
        topics.add("a", 1, 8)
    assert sorted(seen) == sorted([*range(10), *range(5 + 3 * 8)])


def test_limit_bounds_each_batch_unless_spark_asks_for_all(topics: TopicsInMemory) -> None:
    query = Query(topics, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(6)
    sizes = []
    while query.trigger():
        sizes.append(sum(span.size for span in query.spans()))
    assert sizes == [6, 6, 3]
    once = Query(topics, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert once.trigger(all_available=True)
    assert positions(once.log[-1]) == {A0: 10, A1: 5}


def test_batch_waits_for_enough_or_for_the_delay(topics: TopicsInMemory) -> None:
    query = Query(topics, minOffsetsPerTrigger="5", maxTriggerDelay="10s", maxOffsetsPerTrigger="8")
    assert query.trigger()  # the beginning is logged at once
    topics.add("a", 0, 3)
    query.now_s = 9.0
    assert not query.trigger()
    query.now_s = 10.0
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 10, 13)]
    topics.add("a", 1, 20)
    assert query.trigger()
    assert query.spans() == [Span("a", 1, 5, 13)]
    assert Query(topics, minOffsetsPerTrigger="5").reader.getDefaultReadLimit() == ReadMinRows(5)
    assert Query(topics).reader.getDefaultReadLimit() == ReadAllAvailable()


def test_bytes_bound_a_batch_by_what_records_weigh(topics: TopicsInMemory) -> None:
    for _ in range(20):
        topics.add("a", 0, 10, size=500)
    query = Query(topics, startingOffsets='{"a": {"0": 10, "1": 5}}', maxBytesPerTrigger="10000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(10_000)
    assert query.trigger()
    (span,) = query.spans()
    assert 5 <= span.size <= 10  # of about a thousand bytes each
    assert min(access.fetch_bytes for access in query.accesses) == 64 << 10
    sampled_count = len(topics.reads)
    assert query.trigger()
    assert len(topics.reads) == sampled_count


def test_available_now_ends_where_it_was_when_it_began(topics: TopicsInMemory) -> None:
    query = Query(topics, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    query.reader.prepareForTriggerAvailableNow()
    topics.add("a", 0, 50)
    topics.counts["a"] = 3
    topics.add("a", 2, 1)
    while query.trigger():
        pass
    assert positions(query.log[-1]) == {A0: 10, A1: 5}
    assert query.reader.reportLatestOffset() == {"a": {"0": 10, "1": 5}}


def test_stream_says_that_nothing_is_pushed_down(
    topics: TopicsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(topics, pushdown="true")
    query.trigger()
    query.trigger()
    assert caplog.messages == ["a stream takes no notice of pushdown"]


def test_latest_is_reported_for_lag(topics: TopicsInMemory) -> None:
    query = Query(topics, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    assert query.reader.reportLatestOffset() == {"a": {"0": 10, "1": 5}}


def test_records_that_aged_out_fail_the_query_or_are_passed_over(
    topics: TopicsInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[Json] = [{"a": {"0": 2, "1": 5}}]
    topics.add("a", 0, 10)
    topics.age_out("a", 0, 10)
    with pytest.raises(DataLoss, match=r"offsets \[2, 10\) of a-0 are gone.*with failOnDataLoss=false"):
        Query(topics, log).trigger()
    query = Query(topics, log, failOnDataLoss="false", maxOffsetsPerTrigger="4")
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 10, 14)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_topic_made_again_fails_the_query_or_is_read_from_its_beginning(topics: TopicsInMemory) -> None:
    log: list[Json] = [{"a": {"0": 100, "1": 5}}]
    with pytest.raises(
        DataLoss, match="a-0 ends at 10, but the query had read it up to 100: the topic was made again"
    ):
        Query(topics, log).trigger()
    query = Query(topics, log, failOnDataLoss="false")
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 0, 10)]


def test_replay_of_a_batch_of_a_topic_that_was_made_again_fails_or_is_passed_over(
    topics: TopicsInMemory,
) -> None:
    log: list[Json] = []
    assert Query(topics, log, startingOffsets="earliest").trigger()
    topics.forget("a")
    topics.counts["a"] = 2
    topics.add("a", 0, 3)
    with pytest.raises(DataLoss, match=r"a-0 ends at 3, and offsets \[0, 10\) of it were to be read"):
        Query(topics, log).spans()
    query = Query(topics, log, failOnDataLoss="false")
    assert query.spans() == []
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 0, 3)]


def test_end_behind_the_last_stable_offset_is_waited_for_and_no_loss(topics: TopicsInMemory) -> None:
    topics.stable[A0] = 4
    query = Query(topics, [{"a": {"0": 8, "1": 5}}])
    assert not query.trigger()
    topics.stable[A0] = 9
    assert query.trigger()
    assert query.spans() == [Span("a", 0, 8, 9)]


def test_topic_that_goes_fails_the_query_or_is_left_out(topics: TopicsInMemory) -> None:
    topics.counts["b"] = 1
    topics.add("b", 0, 2)
    log: list[Json] = []
    Query(topics, log, subscribe="a,b", startingOffsets="earliest").trigger()
    topics.forget("b")
    with pytest.raises(DataLoss, match="b-0 is gone; the query had read it up to 2"):
        Query(topics, log, subscribe="a,b").trigger()
    with pytest.raises(DataLoss, match=r"b-0 is gone, and offsets \[0, 2\) of it were to be read"):
        Query(topics, log, subscribe="a,b").spans(0)
    lenient = Query(topics, log, subscribe="a,b", failOnDataLoss="false")
    assert lenient.spans(0) == [Span("a", 0, 0, 10), Span("a", 1, 0, 5)]
    assert lenient.trigger()
    assert positions(lenient.log[-1]) == {A0: 10, A1: 5}
    assert not lenient.trigger()
    topics.counts["b"] = 1
    topics.add("b", 0, 1)
    assert lenient.trigger()
    assert lenient.spans() == [Span("b", 0, 0, 1)]


def test_checkpoint_of_another_topic_is_recognised(topics: TopicsInMemory) -> None:
    topics.counts["b"] = 1
    with pytest.raises(
        DataLoss, match=r"the checkpoint has offsets of b, which this query does not read.*checkpointLocation"
    ):
        Query(topics, [{"b": {"0": 2}}]).trigger()
    with pytest.raises(DataLoss, match="a-0 was to be read from 9 to 3, which is backward"):
        Query(topics, [{"a": {"0": 9}}, {"a": {"0": 3}}]).spans()


def test_partition_that_is_no_longer_assigned_is_not_dropped_silently(topics: TopicsInMemory) -> None:
    log: list[Json] = []
    Query(topics, log, assign='{"a": [0, 1]}').trigger()
    with pytest.raises(DataLoss, match="the checkpoint has offsets of a-1, which this query does not read"):
        Query(topics, log, assign='{"a": [0]}').trigger()


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("grow"), st.just(0), st.just(0)),
    st.tuples(st.just("trigger"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
)


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(STEPS, max_size=40), bite=st.integers(1, 12), is_latest=st.booleans())
def test_each_record_is_in_one_batch_whatever_happens_in_between(
    steps: list[tuple[str, int, int]], bite: int, is_latest: bool
) -> None:
    topics = TopicsInMemory(a=1)
    topics.add("a", 0, 7)
    log: list[Json] = []
    spans: list[list[Span]] = []
    given_options = {
        "startingOffsets": "latest" if is_latest else "earliest",
        "maxOffsetsPerTrigger": str(bite),
    }
    query = Query(topics, log, **given_options)
    assert query.trigger()
    spans.append(query.spans())
    for action, number, count in steps:
        if action == "send":
            topics.add("a", number % topics.counts["a"], count)
        elif action == "grow":
            topics.counts["a"] += 1
        elif action == "restart":
            query = Query(topics, log, **given_options)
            if number:
                query.reader.prepareForTriggerAvailableNow()
            assert query.spans() == spans[-1]
        elif query.trigger():
            spans.append(query.spans())
            assert sum(span.size for span in spans[-1]) <= bite
    last = Query(topics, log, **given_options)
    while last.trigger():
        spans.append(last.spans())
    read = sorted(
        (span.partition, offset)
        for batch in spans
        for span in batch
        for offset in range(span.start, span.end)
    )
    there = [
        (partition, offset)
        for partition in range(topics.counts["a"])
        for offset in range(7 if is_latest and partition == 0 else 0, topics.end(Place("a", partition)))
    ]
    assert read == there


def test_stopped_reader_holds_nothing_open(topics: TopicsInMemory) -> None:
    query = Query(topics, maxBytesPerTrigger="10")
    query.trigger()
    query.reader.stop()
    assert not topics.is_open


class Commits:
    """A group's offsets in memory, or a broker that is down."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down
        self.calls: list[tuple[str, dict[tuple[str, int], int]]] = []

    def commit_group(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self.calls.append((group_id, dict(offsets)))
        if self.is_down:
            raise Unreachable("nobody answers")

    def close(self) -> None:
        self.is_down = True


def progress(commits: Commits, **given: str) -> Progress:
    def connect(connection: Connection) -> GroupCommits:
        return commits

    options = source_options({"bootstrap.servers": "h:1", "subscribe": "a"} | given, Mode.STREAM)
    return Progress(options, connect)


def test_progress_is_published_once_for_each_end_and_only_for_a_group() -> None:
    commits = Commits()
    nobody = progress(commits)
    nobody.publish({"a": {"0": 3}})
    assert commits.calls == []
    group = progress(commits, **{"group.id": "g"})
    for _ in range(2):
        group.publish({FROM: {"a": {"0": 1}}, "a": {"0": 3}})
    group.publish({"a": {"0": 4}})
    assert commits.calls == [("g", {("a", 0): 3}), ("g", {("a", 0): 4})]
    group.close()
    assert commits.is_down


def test_progress_that_cannot_be_published_costs_one_warning_and_no_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits = Commits(is_down=True)
    group = progress(commits, **{"group.id": "g"})
    for offset in range(2 + SKIPPED_AFTER_FAILURE):
        group.publish({"a": {"0": offset}})
    assert len(commits.calls) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the progress of group g is not shown: nobody answers"
    ]


class TopicsThatGo(TopicsInMemory):
    """As over the network: what is not there any more is an error, and has gone since it was listed."""

    goes: str | None = None

    def latest(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        if self.goes is not None:
            topic, self.goes = self.goes, None
            self.forget(topic)
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"asking for the end of {topic}-0")
        return super().latest(places, committed=committed)


@pytest.mark.parametrize("others", [{}, {"b": 1}])
def test_topic_that_goes_between_being_listed_and_asked_about_is_gone_by_its_name(
    others: dict[str, int],
) -> None:
    topics = TopicsThatGo(a=1, **others)
    topics.add("a", 0, 3)
    query = Query(topics, subscribePattern="a|b")
    assert query.trigger()
    topics.goes = "a"
    with pytest.raises(DataLoss, match="a-0 is gone; the query had read it up to 3"):
        query.trigger()


def test_topic_that_is_there_and_not_known_is_an_error() -> None:
    class Confused(TopicsThatGo):
        def forget(self, topic: str) -> None:
            self.goes = topic

    topics = Confused(a=1)
    topics.goes = "a"
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        Query(topics).trigger()
