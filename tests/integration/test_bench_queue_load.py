"""The benchmark's queue load generator against our own broker: it measures what it verified, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bench.line import BenchFailed
from bench.peers.peer import PeerAbsent
from bench.queue_bench import OUR_QUEUES, OURS, VALUE_BYTES, QueueBench
from bench.queue_peer import QueueServer, free_ports
from bench.queue_plans import Dialect, Queue, Wake


class Absent:
    name = "absent"

    def start(self, folder: Path) -> AbstractContextManager[QueueServer]:
        raise PeerAbsent("it was never written")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueBench]:
    ours = OUR_QUEUES[
        :1
    ]  # by REST: the share consumer of librdkafka is a preview, which a benchmark may wait for in vain
    with QueueBench(tmp_path_factory.mktemp("bench"), 100, ours=ours, peers=[Absent()]) as bench:
        bench.sides()
        yield bench


def test_a_peer_that_cannot_be_installed_is_left_out_with_its_reason(bench: QueueBench) -> None:
    assert [side.name for side in bench.sides()] == [OURS]
    assert bench.absent == {"absent": "it was never written"}


def test_work_is_measured_and_everything_is_acknowledged(bench: QueueBench) -> None:
    worked = bench.load.work(bench.plan(bench.ours(), 1_000))
    assert worked.count == 1_000
    assert min(worked.published.server_cpu_s, worked.drained.server_cpu_s, worked.rate) > 0


def test_messages_of_all_priorities_are_drained(bench: QueueBench) -> None:
    assert bench.load.work(bench.plan(bench.ours(), 500, (2, 0, 3, 1, 4))).count == 500


def test_the_time_to_wake_a_waiting_consumer_is_measured(bench: QueueBench) -> None:
    woken = bench.load.wake(Wake(bench.queue(bench.ours()), 5, VALUE_BYTES))
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
