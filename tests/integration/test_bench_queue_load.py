"""The benchmark's queue load generator against our own broker: it measures what it verified, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bench.line import BenchFailed
from bench.peers.peer import PeerAbsent
from bench.queue_bench import OURS, OURS_BY_KAFKA, VALUE_BYTES, QueueBench, QueueSide
from bench.queue_peer import QueueServer, free_ports
from bench.queue_plans import Dialect, Queue, Wake


class Absent:
    name = "absent"

    def start(self, folder: Path) -> AbstractContextManager[QueueServer]:
        raise PeerAbsent("it was never written")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBench]:
    with QueueBench(tmp_path_factory.mktemp("bench"), 100, peers=[Absent()]) as bench:
        bench.sides()
        yield bench


def named(bench: QueueBench, name: str) -> QueueSide:
    return next(side for side in bench.sides() if side.name == name)


def test_a_peer_that_cannot_be_installed_is_left_out_with_its_reason(bench: QueueBench) -> None:
    assert [side.name for side in bench.sides()] == [OURS, OURS_BY_KAFKA]
    assert bench.absent == {"absent": "it was never written"}


@pytest.mark.parametrize("name", [OURS, OURS_BY_KAFKA])
def test_work_is_measured_and_everything_is_acknowledged(bench: QueueBench, name: str) -> None:
    worked = bench.load.work(bench.plan(named(bench, name), 1_000))
    assert worked.count == 1_000
    assert min(worked.published.server_cpu_s, worked.drained.server_cpu_s, worked.rate) > 0


def test_messages_of_all_priorities_are_drained(bench: QueueBench) -> None:
    assert bench.load.work(bench.plan(bench.ours(), 500, (2, 0, 3, 1, 4))).count == 500


def test_a_consumer_that_comes_too_late_for_any_message_is_closed_all_the_same(bench: QueueBench) -> None:
    """librdkafka's share consumer waits for ever if it is closed at the wrong moment of its beginning."""
    for _ in range(5):
        assert bench.load.work(bench.plan(named(bench, OURS_BY_KAFKA), 10)).count == 10


@pytest.mark.parametrize("name", [OURS, OURS_BY_KAFKA])
def test_the_time_to_wake_a_waiting_consumer_is_measured(bench: QueueBench, name: str) -> None:
    woken = bench.load.wake(Wake(bench.queue(named(bench, name)), 5, VALUE_BYTES))
    assert 0 < woken.p50_ms <= woken.p99_ms <= woken.most_ms


def test_what_a_server_refuses_fails_the_line(bench: QueueBench) -> None:
    plan = bench.plan(bench.ours(), 100, (9,))
    with pytest.raises(BenchFailed, match=r"rest: BenchFailed: POST .*priority"):
        bench.load.work(plan)


def test_a_server_that_is_not_there_fails_the_line(bench: QueueBench) -> None:
    (port,) = free_ports(1)
    queue = Queue(Dialect.REST, "nowhere", port, bench.ours().server.pid)
    with pytest.raises(BenchFailed, match="rest: "):
        bench.load.wake(Wake(queue, 1, VALUE_BYTES))
