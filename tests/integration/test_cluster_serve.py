"""`goqueue serve --nodes`: a whole cluster of real processes by one command."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import stat
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest
from tests.support.broker import START_TIMEOUT_S, Process, clean_environment, command_line
from tests.support.kafka_clients import Confluent, Record, until

from goqueue.client.rest import RestClient

END_TIMEOUT_S = 60.0
ALL_READY = re.compile(r"ready nodes=(\d+) http=(\S+) kafka=(\S+)")
ANYWHERE = ("--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--cluster", "127.0.0.1:0")
RECORDS = [Record(value=f"v{number}".encode(), partition=number % 3) for number in range(300)]


class Pid(NamedTuple):
    """A process that is not a child of ours, held so that its number means no other."""

    number: int
    descriptor: int

    @classmethod
    def of(cls, folder: Path) -> Pid:
        """Of the node whose data folder it is."""
        number = int((folder / "lock").read_text().split()[1])
        return cls(number, os.pidfd_open(number))

    def wait_for_its_end(self) -> None:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        assert poll.poll(END_TIMEOUT_S * 1_000), f"process {self.number} is still there"


class LocalNodes(Process):
    """`goqueue serve --nodes 3` on free ports. The constructor returns when all are ready."""

    def __init__(self, data_dir: Path, *args: str) -> None:
        self.data_dir = data_dir
        super().__init__("serve", "--nodes", "3", "--data-dir", str(data_dir), *ANYWHERE, *args)
        self._pids: list[Pid] = []
        try:
            ready = self.stdout.wait_for(ALL_READY, timeout_s=START_TIMEOUT_S)
        except AssertionError as error:
            self.kill9()
            raise AssertionError(f"{error}\n{self.stderr.text()}") from None
        self.urls = [f"http://{address}" for address in ready[2].split(",")]
        self.kafka = ready[3]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for pid in self._pids:
            os.close(pid.descriptor)

    def pids(self) -> dict[str, Pid]:
        found = {folder.name: Pid.of(folder) for folder in sorted(self.data_dir.glob("node-*"))}
        self._pids += found.values()
        return found


def goqueue(url: str, *args: str) -> str:
    done = subprocess.run(
        command_line(*args, "--url", url),
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def states(url: str) -> list[tuple[str, str]]:
    """Of all nodes, as one of them has it."""
    nodes = json.loads(goqueue(url, "cluster", "nodes", "-o", "json"))
    return [(node["name"], node["state"]) for node in nodes]


def is_whole(client: RestClient, topic: str) -> bool:
    return all(len(partition.isr) == 3 for partition in client.partitions(topic))


pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


def test_a_killed_node_comes_back_and_everything_that_was_sent_is_there(tmp_path: Path) -> None:
    with LocalNodes(tmp_path / "data") as nodes, RestClient(nodes.urls[1]) as client:
        client.create_topic("orders", partition_count=3, replication_factor=3)
        Confluent(nodes.kafka).send("orders", RECORDS[:150])
        alive = [(f"node-{number}", "alive") for number in (1, 2, 3)]
        until(lambda: states(nodes.urls[2]) == alive, "all nodes are alive")
        before = nodes.pids()
        os.kill(before["node-3"].number, signal.SIGKILL)
        nodes.stderr.wait_for("node has ended name=node-3 with='signal SIGKILL'")
        Confluent(nodes.kafka).send("orders", RECORDS[150:])
        until(lambda: nodes.stdout.text().count("ready node=node-3") == 2, "node-3 is ready again")
        until(lambda: is_whole(client, "orders"), "all replicas are in sync again")
        after = nodes.pids()
        assert {name for name in after if after[name].number != before[name].number} == {"node-3"}
        rows = Confluent(nodes.kafka).read("orders", dict.fromkeys(range(3), 100))
        assert sorted(row.value or b"" for row in rows) == sorted(one.value or b"" for one in RECORDS)
        nodes.signal(signal.SIGTERM)
        assert nodes.wait(timeout_s=END_TIMEOUT_S) == 0
        for pid in after.values():
            pid.wait_for_its_end()
        assert stat.S_IMODE((nodes.data_dir / "cluster-secret").stat().st_mode) == 0o600


def test_leaderships_leave_a_drained_node_and_come_back(tmp_path: Path) -> None:
    with LocalNodes(tmp_path / "data") as nodes, RestClient(nodes.urls[0]) as client:
        client.create_topic("orders", partition_count=6, replication_factor=3)
        assert "node-2 is draining and leads 0" in goqueue(
            nodes.urls[0], "cluster", "drain", "node-2", "--wait", "--yes"
        )
        assert "node-2" not in {partition.leader for partition in client.partitions("orders")}
        assert "node-2 is alive" in goqueue(nodes.urls[2], "cluster", "undrain", "node-2", "--yes")
        goqueue(nodes.urls[2], "cluster", "rebalance", "--yes")
        until(
            lambda: [one.leader for one in client.partitions("orders")].count("node-2") == 2,
            "node-2 leads its share",
        )
        assert "node-1" in goqueue(nodes.urls[0], "cluster", "info")
        assert goqueue(nodes.urls[0], "cluster", "health").startswith("status")


def test_nodes_do_not_outlive_the_process_that_started_them(tmp_path: Path) -> None:
    with LocalNodes(tmp_path / "data") as nodes:
        pids = nodes.pids()
        nodes.kill9()
        for pid in pids.values():
            pid.wait_for_its_end()


def test_a_node_that_cannot_start_is_the_end_of_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "data" / f"node-{number}").mkdir()
    (tmp_path / "data" / "node-2" / "logs").write_text("not a folder")
    with Process("serve", "--nodes", "3", "--data-dir", str(tmp_path / "data"), *ANYWHERE) as nodes:
        assert nodes.wait() == 1
        assert "error: node-2 cannot start" in nodes.stderr.text()
