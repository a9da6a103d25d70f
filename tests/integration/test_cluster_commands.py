"""Partitions are moved, and topics get more and fewer of them, by the command line alone: what it prints, its JSON, its exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.broker import clean_environment, command_line
from tests.support.cluster_load import create
from tests.support.cluster_rest import Json, Rest
from tests.support.kafka_clients import Confluent, Record, until
from tests.support.local_cluster import LocalCluster

from goqueue.client.rest import NewMessage, RestClient

COMMAND_TIMEOUT_S = 240.0
SETTLED_S = 120.0
SLOW = "1000"  # bytes a second: what is on its way stays there until a test ends it
TO_COPY = [Record(value=b"." * 1_000, partition=number % 2) for number in range(200)]


class Done(NamedTuple):
    code: int
    out: str
    error: str

    @property
    def lines(self) -> list[list[str]]:
        """A table, by words."""
        return [line.split() for line in self.out.splitlines()]


class Shell:
    """`goqueue` as somebody types it who looks at node 2, and who does not answer questions."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._url = cluster.nodes[2].url

    def run(self, *args: str) -> Done:
        done = subprocess.run(
            command_line(*args, "--url", self._url),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            env=clean_environment(),
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def table(self, *args: str) -> Done:
        done = self.run(*args)
        assert (done.code, done.error) == (0, ""), done
        return done

    def json(self, *args: str) -> Json:
        return json.loads(self.table(*args, "-o", "json").out)

    def refused(self, *args: str) -> str:
        """What was asked for was not done; the sentence."""
        return self._failed(1, *args)

    def misused(self, *args: str) -> str:
        """The command was not understood; the sentence."""
        return self._failed(2, *args)

    def _failed(self, code: int, *args: str) -> str:
        done = self.run(*args)
        assert (done.code, done.out.strip()) == (code, ""), done  # a question leaves a space behind
        return done.error


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("commands")
    with LocalCluster(folder, size=4) as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: LocalCluster) -> Shell:
    return Shell(cluster)


def replicas(cluster: LocalCluster, topic: str) -> list[list[int]]:
    (found,) = [one for one in Rest(cluster).get(2, "/cluster/metadata")["topics"] if one["name"] == topic]
    return [one["state"]["replicas"] for one in found["partitions"]]


def file_of(path: Path, plan: Json) -> str:
    path.write_text(plan if isinstance(plan, str) else json.dumps(plan))
    return str(path)


def test_a_plan_is_foreseen_begun_paused_resumed_given_up_and_carried_out(
    cluster: LocalCluster, shell: Shell, tmp_path: Path
) -> None:
    create(cluster, "moved", [[1, 2, 3]] * 2)
    Confluent(cluster.bootstrap).send("moved", TO_COPY)
    names = ["node-4", "node-2", "node-3"]
    file = file_of(
        tmp_path / "plan.json", [{"topic": "moved", "partition": at, "replicas": names} for at in (0, 1)]
    )
    assert shell.table("cluster", "reassign", "status").out == "there are no plans\n"
    assert shell.json("cluster", "reassign", "status") == []

    foreseen = shell.table("cluster", "reassign", "plan", "--file", file).lines
    assert foreseen[:3] == [
        ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
        ["moved", "0", "node-1,node-2,node-3", "node-4,node-2,node-3"],
        ["moved", "1", "node-1,node-2,node-3", "node-4,node-2,node-3"],
    ]
    assert foreseen[4] == ["NODE", "REPLICAS", "LEADERS", "BYTES", "TO", "COPY"]
    assert [line[:4] for line in foreseen[5:9] if line[0] == "node-4"] == [["node-4", "0", "->", "2"]]
    preview = shell.json("cluster", "reassign", "plan", "--file", file)
    assert [move["after"] for move in preview["moves"]] == [names, names]
    assert "nothing was changed" in shell.refused("cluster", "reassign", "start", "--file", file)
    assert shell.table("cluster", "reassign", "status").out == "there are no plans\n"

    slowly = ("--file", file, "--throttle", SLOW, "--parallel", "1", "--yes")
    plan = shell.json("cluster", "reassign", "start", *slowly)
    id = str(plan["id"])
    assert (plan["state"], plan["parallel"]) == ("running", 1)
    assert plan["throttle_bytes_per_second"] == int(SLOW)
    until(lambda: 4 in replicas(cluster, "moved")[0], "the first one moves")
    assert "moved-0 is being moved already" in shell.refused("cluster", "reassign", "start", *slowly)

    assert f"plan {id} is paused" in shell.table("cluster", "reassign", "pause", id).out
    listed = shell.table("cluster", "reassign", "status").lines
    assert listed[0] == ["PLAN", "STATE", "MOVES", "THROTTLE"]
    assert (listed[1][:2], listed[1][-1]) == ([id, "paused"], SLOW)
    moves = shell.table("cluster", "reassign", "status", id).lines
    assert moves[0][:3] == ["plan", id, "is"]
    assert moves[1][:4] == ["TOPIC", "PARTITION", "STATE", "BEFORE"]
    assert [line[:3] for line in moves[2:]] == [["moved", "0", "moving"], ["moved", "1", "waiting"]]
    (state,) = shell.json("cluster", "reassign", "status")
    assert (state["id"], state["state"]) == (plan["id"], "paused")

    assert shell.json("cluster", "reassign", "resume", id)["state"] == "running"
    assert "nothing was changed" in shell.refused("cluster", "reassign", "cancel", id)
    assert f"plan {id} is cancelled" in shell.table("cluster", "reassign", "cancel", id, "--yes").out
    until(lambda: replicas(cluster, "moved") == [[1, 2, 3]] * 2, "all is as it was")

    carried_out = shell.table("cluster", "reassign", "start", "--file", file, "--wait", "--yes").out
    assert carried_out.endswith("is done: 2 done\n")
    assert replicas(cluster, "moved") == [[4, 2, 3]] * 2


def test_nodes_get_the_same_of_one_topic_or_of_all(cluster: LocalCluster, shell: Shell) -> None:
    create(cluster, "leaning", [[1, 2, 3]] * 4)
    create(cluster, "other", [[1, 2, 3]] * 4)
    one = ("--topic", "leaning")
    assert {move["topic"] for move in shell.json("cluster", "reassign", "plan", *one)["moves"]} == {"leaning"}
    done = shell.json(
        "cluster", "reassign", "start", *one, "--throttle", "50000000", "--parallel", "2", "--wait", "--yes"
    )
    assert (done["state"], done["throttle_bytes_per_second"]) == ("done", 50_000_000)
    assert any(4 in found for found in replicas(cluster, "leaning"))
    assert replicas(cluster, "other") == [[1, 2, 3]] * 4
    table = shell.table("cluster", "reassign", "plan", "--balance").lines
    assert table[0] == ["TOPIC", "PARTITION", "BEFORE", "AFTER"]
    assert "done" in shell.table("cluster", "reassign", "start", "--balance", "--wait", "--yes").out
    assert any(4 in found for found in replicas(cluster, "other"))
    assert shell.json("cluster", "reassign", "plan", "--balance")["moves"] == []
    assert shell.table("cluster", "reassign", "plan", "--balance").out == "nothing has to be moved\n"
    assert "nothing has to be moved" in shell.refused("cluster", "reassign", "start", "--balance", "--yes")


def test_what_a_plan_cannot_be_is_one_sentence(shell: Shell, tmp_path: Path) -> None:
    reassign = ("cluster", "reassign")
    for command in ("plan", "start"):
        for wrong in ((), ("--balance", "--drain", "node-1")):
            assert "give one of --file, --drain and --balance" in shell.misused(*reassign, command, *wrong)
    assert "--throttle" in shell.misused(*reassign, "start", "--balance", "--throttle", "0", "--yes")
    assert "ID" in shell.misused(*reassign, "pause")
    missing = str(tmp_path / "missing.json")
    assert f"error: {missing} cannot be read" in shell.refused(*reassign, "plan", "--file", missing)
    nonsense = file_of(tmp_path / "nonsense.json", "{not a plan")
    assert "is not a plan" in shell.refused(*reassign, "start", "--file", nonsense, "--yes")
    unknown = file_of(
        tmp_path / "unknown.json", [{"topic": "nowhere", "partition": 0, "replicas": ["node-1"]}]
    )
    assert "nowhere" in shell.refused(*reassign, "plan", "--file", unknown)
    assert "node-9" in shell.refused(*reassign, "plan", "--drain", "node-9")
    for asked in (("status", "999"), ("pause", "999"), ("resume", "999"), ("cancel", "999", "--yes")):
        assert "999" in shell.refused(*reassign, *asked)


def test_a_topic_that_keeps_the_order_of_keys_grows_and_shrinks(cluster: LocalCluster, shell: Shell) -> None:
    shell.table("topic", "create", "keyed", "-p", "2", "-r", "3", "--config", "scaling=keyed")
    with RestClient(cluster.nodes[2].url) as client:
        client.publish("keyed", [NewMessage(b"v", key=f"{number}".encode()) for number in range(20)])
    commit(cluster, {0: 1, 1: 1})
    assert "nothing was changed" in shell.refused("topic", "scale", "keyed", "4")
    assert "3" in shell.refused("topic", "scale", "keyed", "3", "--yes")  # no multiple
    assert shell.table("topic", "scale", "keyed", "4", "--yes").out == "keyed has 4 partitions\n"
    until(lambda: len(gates(shell)) == 2, "the group is kept from both", timeout_s=SETTLED_S)

    ends = {
        one["partition"]: one["high_watermark"]
        for one in shell.json("topic", "describe", "keyed")["partitions"]
    }
    table = shell.table("topic", "scaling", "keyed").lines
    assert ["keys", "are", "spread", "over", "4", "partitions,", "before", "that", "2"] in table
    assert table[-2:] == [
        ["2", "0", str(ends[0]), "slow", "1", "False"],
        ["3", "1", str(ends[1]), "slow", "1", "False"],
    ]
    assert "(slow)" in shell.refused("topic", "scale", "keyed", "2", "--yes")
    commit(cluster, {0: ends[0], 1: ends[1]})
    until(lambda: gates(shell) == [], "the group has read everything", timeout_s=SETTLED_S)

    shrinking = shell.table("topic", "scale", "keyed", "2", "--discard-read", "--yes").out
    assert shrinking == "keyed will have 2 partitions\n"
    until(lambda: status(shell) == ("complete", 2), "two have gone", timeout_s=SETTLED_S)
    table = shell.table("topic", "scaling", "keyed").lines
    assert ["partitions", "2", "of", "2", "are", "ready"] in table
    assert ["stage", "steady"] in table


def gates(shell: Shell) -> list[Json]:
    return list(shell.json("topic", "scaling", "keyed")["keyed"]["gates"])


def status(shell: Shell) -> tuple[str, int]:
    found = shell.json("topic", "scaling", "keyed")
    return found["status"], found["partitions"]


def commit(cluster: LocalCluster, offsets: dict[int, int]) -> None:
    """For the group `slow`, which has no members."""
    consumer: Any = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "slow"})
    consumer.commit(
        offsets=[TopicPartition("keyed", index, offset) for index, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def test_a_topic_without_scaling_only_grows(shell: Shell) -> None:
    shell.table("topic", "create", "plain", "--partitions", "1", "--replication-factor", "3")
    assert shell.table("topic", "scale", "plain", "2", "--yes").out == "plain has 2 partitions\n"
    scaled = shell.json("topic", "scale", "plain", "5", "--yes")
    assert scaled == {"name": "plain", "old_count": 2, "new_count": 5, "partitions_added": 3}
    until(lambda: shell.json("topic", "scaling", "plain")["status"] == "complete", "all are ready")
    assert shell.table("topic", "scaling", "plain").lines == [
        ["topic", "plain"],
        ["status", "complete"],
        ["partitions", "5", "of", "5", "are", "ready"],
    ]
    assert shell.json("topic", "scaling", "plain")["keyed"] is None
    assert "scaling=keyed" in shell.refused("topic", "scale", "plain", "2", "--yes")
    assert "nowhere" in shell.refused("topic", "scale", "nowhere", "2", "--yes")
    assert "nowhere" in shell.refused("topic", "scaling", "nowhere")
    assert "PARTITIONS" in shell.misused("topic", "scale", "plain")
    assert "PARTITIONS" in shell.misused("topic", "scale", "plain", "0", "--yes")
    assert "TOPIC" in shell.misused("topic", "scaling")
