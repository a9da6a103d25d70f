"""The arithmetic and the checks of the benchmark's queue lines; tests/integration/test_bench_queue_load.py runs the load."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any  # stands in for pika's channel, which has no types

import pika
import pytest
from bench.child import Child
from bench.kafka_values import value_of
from bench.line import BenchFailed, Line, spread
from bench.lines.queue_work import with_durability
from bench.peers.debian import run, unpack
from bench.peers.nats import JetStream
from bench.peers.peer import PeerAbsent
from bench.peers.rabbitmq import RabbitMq
from bench.queue_amqp import AmqpPublisher
from bench.queue_bench import PEERS, QueueSide
from bench.queue_client import Tally
from bench.queue_peer import QueueServer, free_ports
from bench.queue_plans import Cost, Dialect, Worked

from goqueue.sim.loop import run as run_simulated

VALUE_BYTES = 20
FILLER = value_of(0, VALUE_BYTES)[12:]


def side(name: str, durability: str) -> QueueSide:
    with Child("this", program=["true"]) as child:
        return QueueSide(name, QueueServer(name, durability, Dialect.REST, 0, child))


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is installed and nothing is in the cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GOQUEUE_BENCH_CACHE", str(tmp_path / "cache"))


# -------------------------------------------------------------------- what is verified


def test_messages_that_are_all_taken_once_in_any_order_are_accepted() -> None:
    tally = Tally(3, FILLER)
    assert [tally.add(value_of(index, VALUE_BYTES)) for index in (2, 0, 1)] == [2, 0, 1]
    assert tally.is_complete


def test_a_tally_is_not_complete_while_a_message_is_missing() -> None:
    tally = Tally(2, FILLER)
    tally.add(value_of(1, VALUE_BYTES))
    assert not tally.is_complete


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (value_of(0, VALUE_BYTES), "twice"),
        (value_of(9, VALUE_BYTES), "never sent"),
        (value_of(1, VALUE_BYTES + 1), "other bytes"),
        (b"something else", "begins with"),
    ],
)
def test_a_message_that_is_not_what_was_sent_fails_the_run(value: bytes, reason: str) -> None:
    tally = Tally(2, FILLER)
    tally.add(value_of(0, VALUE_BYTES))
    with pytest.raises(BenchFailed, match=reason):
        tally.add(value)


class Confirming:
    """A channel that confirms when it is told to."""

    def __init__(self) -> None:
        self.published: list[bytes] = []

    def basic_publish(self, exchange: str, queue: str, body: bytes, properties: object) -> None:
        self.published.append(body)


def frame(method: Any) -> Any:
    return SimpleNamespace(method=method)


async def publish(frames: Sequence[Any], count: int) -> bool:
    """Whether that many publishes are confirmed by these frames."""
    publisher = AmqpPublisher(Confirming(), "queue")
    publishing = asyncio.create_task(publisher.publish([b"x"] * count))
    await asyncio.sleep(0)
    for one in frames:
        publisher._confirmed(one)
    done, waiting = await asyncio.wait([publishing], timeout=0.01)
    for task in waiting:
        task.cancel()
    for task in done:
        task.result()
    return bool(done)


@pytest.mark.parametrize(
    ("frames", "is_confirmed"),
    [
        ([pika.spec.Basic.Ack(3, True)], True),
        ([pika.spec.Basic.Ack(3), pika.spec.Basic.Ack(2, True)], True),
        ([pika.spec.Basic.Ack(1), pika.spec.Basic.Ack(3), pika.spec.Basic.Ack(2)], True),
        ([pika.spec.Basic.Ack(3)], False),
        ([pika.spec.Basic.Ack(2, True)], False),
    ],
)
def test_a_publish_by_amqp_waits_for_the_confirm_of_every_message(
    frames: list[Any], is_confirmed: bool
) -> None:
    assert run_simulated(lambda _: publish([frame(one) for one in frames], 3), seed=0) is is_confirmed


def test_a_message_that_rabbitmq_refuses_fails_the_run() -> None:
    with pytest.raises(BenchFailed, match="refused"):
        run_simulated(lambda _: publish([frame(pika.spec.Basic.Nack(1))], 1), seed=0)


# -------------------------------------------------------------------- arithmetic


def test_rates_are_over_both_phases_and_per_core_by_the_servers_time_only() -> None:
    worked = Worked(1_000, Cost(1.0, 0.25, 0.5), Cost(3.0, 0.75, 1.5))
    assert (worked.rate, worked.rate_per_core, worked.client_share) == (250, 1_000, 0.5)


def test_a_line_says_what_both_sides_promise() -> None:
    lines = [Line(f"queue.rate.vs_{name}", "", "msg/s", spread([1.0])) for name in ("a", "b")]
    a, b = with_durability([side("ours", "synced"), side("a", "lazy"), side("b", "never")], lines)
    assert a.details == {"durability": "synced", "a_durability": "lazy"}
    assert b.details == {"durability": "synced", "b_durability": "never"}


def test_free_ports_differ() -> None:
    assert len(set(free_ports(3))) == 3


# -------------------------------------------------------------------- absence


def test_peers_have_names_of_their_own() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)


@pytest.mark.usefixtures("no_programs")
def test_a_package_is_absent_where_there_is_no_apt() -> None:
    with pytest.raises(PeerAbsent, match="no apt-get"):
        unpack(("redis-server",))


@pytest.mark.usefixtures("no_programs")
def test_synced_nats_is_absent_where_there_is_no_go(tmp_path: Path) -> None:
    with pytest.raises(PeerAbsent, match="sync_interval"), JetStream("nats", is_synced=True).start(tmp_path):
        pass


def test_a_command_that_fails_makes_its_peer_absent_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(PeerAbsent, match="no such thing"):
        run(["sh", "-c", "echo first; echo no such thing >&2; exit 3"], cwd=tmp_path)
    with pytest.raises(PeerAbsent, match="cannot be run"):
        run([str(tmp_path / "nothing")], cwd=tmp_path)
    with pytest.raises(PeerAbsent, match="took longer"):
        run(["sleep", "5"], cwd=tmp_path, timeout_s=0.05)


def test_an_unpacked_package_of_another_shape_makes_its_peer_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOQUEUE_BENCH_CACHE", str(tmp_path))
    (tmp_path / "debian" / "rabbitmq-server").mkdir(parents=True)
    with (
        pytest.raises(PeerAbsent, match="0 of usr/lib/rabbitmq"),
        RabbitMq("rabbitmq", Dialect.AMQP_CLASSIC).start(tmp_path),
    ):
        pass


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb to make a package with")
def test_packages_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN" / "control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: a thing\n"
    )
    (source / "usr").mkdir()
    (source / "usr" / "thing").write_text("a thing")
    package = tmp_path / "thing.deb"
    run(["dpkg-deb", "--build", str(source), str(package)], cwd=tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    apt = programs / "apt-get"
    apt.write_text(f"#!/bin/sh\ncp {package} .\nrm {apt}\n")  # a second download would fail
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("GOQUEUE_BENCH_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert (unpack(("thing",)) / "usr" / "thing").read_text() == "a thing"
