"""The benchmark's Kafka load generator against librdkafka's mock cluster: it measures what it verified, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from bench.kafka_bench import KafkaBench, Side, Warmth
from bench.kafka_plans import Consume, Pace, Produce, Spreading
from bench.line import BenchFailed
from bench.peers.mock_cluster import MockCluster
from bench.peers.peer import KafkaServer, PeerAbsent


class Absent:
    name = "absent"
    title = "A server that is not here"
    is_broker = True

    def start(self, folder: Path) -> AbstractContextManager[KafkaServer]:
        raise PeerAbsent("it was never written")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBench]:
    folder = tmp_path_factory.mktemp("bench")
    with KafkaBench(folder, Warmth(10, 10), ours=MockCluster(), peers=[Absent()]) as bench:
        bench.sides()
        yield bench


@pytest.fixture
def mock(bench: KafkaBench) -> Side:
    return bench.sides()[0]


def test_a_peer_that_cannot_be_installed_is_left_out_with_its_reason(bench: KafkaBench) -> None:
    assert [side.name for side in bench.sides()] == ["mock"]
    assert bench.absent == {"absent": "it was never written"}


def test_a_burst_is_measured_and_read_back(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=3) as target:
        produced, consumed = bench.burst(mock, Produce(target, 1_000, 100, "all"))
    assert consumed.message_count == 1_000
    assert min(produced.seconds, produced.server_cpu_s, consumed.seconds, consumed.client_cpu_s) > 0
    assert produced.request_count is None


def test_every_message_has_a_request_of_its_own_in_a_round_robin(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=20) as target:
        plan = Produce(target, 200, 100, "1", Spreading.ROUND_ROBIN)
        produced, _ = bench.burst(mock, plan)
    assert produced.request_count == 180


def test_messages_that_are_missing_fail_the_line(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=1) as target:
        bench.load.produce(Produce(target, 10, 100, "1"))
        with pytest.raises(BenchFailed, match="11 messages were sent, 10 are stored"):
            bench.load.consume(Consume(target, 11, 100, is_everything_kept=True))


def test_messages_with_another_content_fail_the_line(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=1) as target:
        bench.load.produce(Produce(target, 10, 100, "1"))
        with pytest.raises(BenchFailed, match="other bytes"):
            bench.load.consume(Consume(target, 10, 99, is_everything_kept=True))


def test_a_topic_with_other_partitions_fails_the_line(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=1) as target:
        wrong = msgspec.structs.replace(target, partition_count=2)
        with pytest.raises(BenchFailed, match="the topic has 1 partitions"):
            bench.load.produce(Produce(wrong, 10, 100, "1"))


def test_a_steady_rate_is_measured_from_when_a_message_was_due(bench: KafkaBench, mock: Side) -> None:
    with bench.topic(mock, partition_count=1) as target:
        paced = bench.load.pace(Pace(target, 100, "1", 20, 10.0, 2))
    assert 0 < paced.p50_ms <= paced.p99_ms <= paced.p999_ms
    assert paced.fetches_per_s > 0
