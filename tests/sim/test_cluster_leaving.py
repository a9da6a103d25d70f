"""A node that is asked to stop: others lead what it led, and one of them is the controller, before it refuses anything. Where nobody
can take over it stops all the same, when its patience is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.model.cluster_errors import NotController
from goqueue.model.record import Producer
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.ports import Beat, BeatAnswer
from goqueue.node.node import Node
from goqueue.sim.cluster.client import RETRIABLE, ClusterClient
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import new_batch, read_records
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Part, now_ms

PARTS = [Part("orders", index) for index in range(6)]
DEAD_S = 1.2  # of the nodes here: whoever falls silent is found dead after that
LEAVE_S = 5.0  # as those nodes have it
ENDING_S_MAX = 3.0  # for the rest of a stop: listeners, checkpoints, the last word to the others
WARNING = "this node stops although it may lead partitions"


@dataclass(slots=True)
class Handover:
    """What is so when a node that stops has left, and is about to refuse writes."""

    led: list[tuple[str, int]]  # by the node, as it knows itself
    controller: str | None  # as the node knows
    is_led: bool = False  # the quorum, by that one, as it knows itself
    counts: list[int] = field(default_factory=list)  # of the node's leaderships, as the new controller knows


class Sender:
    """An idempotent producer of one partition: one record after another, each until it is acknowledged."""

    def __init__(self, played: PlayedCluster, part: Part) -> None:
        self.part = part
        self.offsets: dict[str, int] = {}
        self.acked_s: list[float] = []
        self.is_asked_to_end = False
        self._client = ClusterClient(f"sender-{part.partition}", played.cluster.names, Random(part.partition))

    async def run(self) -> None:
        begun = await self._client.ask_any(
            "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000
        )
        assert begun.error_code == 0
        while not self.is_asked_to_end:
            sequence = len(self.offsets)
            value = f"{self.part.partition}.{sequence}"
            producer = Producer(begun.producer_id, begun.producer_epoch, sequence)
            batch = new_batch([value], producer, now_ms(), is_transactional=False)
            while (offset := await self._offset(batch)) is None:
                self._client.doubt(self.part)
                await asyncio.sleep(0.02)
            self.offsets[value] = offset
            self.acked_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.01)
        self._client.close()

    async def _offset(self, batch: bytes) -> int | None:
        kinds = requests("produce")
        rows = [kinds.PartitionProduceData(index=self.part.partition, records=batch)]
        topic = kinds.TopicProduceData(name=self.part.topic, partition_data=rows)
        try:
            leader = await self._client.leader_of(self.part)
            answer = await self._client.ask(
                leader.host, "produce", 9, acks=-1, timeout_ms=5_000, topic_data=[topic]
            )
        except NoAnswer:
            return None
        result = answer.responses[0].partition_responses[0]
        assert result.error_code in RETRIABLE | {0}, result
        return None if result.error_code else int(result.base_offset)


@pytest.mark.parametrize("is_controller", [True, False], ids=["controller", "another"])
def test_a_node_that_stops_leads_nothing_any_more_before_it_refuses_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_controller: bool
) -> None:
    seen: list[Handover] = []

    async def play(played: PlayedCluster) -> None:
        await played.create(num_partitions=len(PARTS), replication_factor=3)
        host = next(
            one
            for one in played.cluster.hosts.values()
            if (one is played.cluster.controller()) is is_controller
        )
        stopping = played.node(host.name)
        number = stopping.directory.number
        assert stopping._metadata.catalog.partitions.leader_count(number), "it leads nothing from the start"
        watch_handover(monkeypatch, played, stopping, seen)
        senders = [Sender(played, part) for part in PARTS]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for sender in senders:
                group.create_task(sender.run())
            await played.until(lambda: all(len(sender.offsets) >= 10 for sender in senders))
            began = played.loop.time()
            assert await host.stop()
            assert played.loop.time() - began < LEAVE_S
            (handover,) = seen
            assert (handover.led, handover.is_led, handover.counts) == ([], True, [0])
            left = [len(sender.offsets) for sender in senders]
            assert state_of(played, host.name) is NodeState.FENCED, "others still wait for it"
            await played.until(
                lambda: all(len(one.offsets) >= count + 10 for one, count in zip(senders, left, strict=True))
            )
            for sender in senders:
                sender.is_asked_to_end = True
        for sender in senders:
            gaps = [later - earlier for earlier, later in pairwise(sender.acked_s)]
            assert max(gaps) < DEAD_S, f"{sender.part} was not taken over but found without a leader"
            assert await read_back(played, sender.part) == {at: one for one, at in sender.offsets.items()}

    in_cluster(play)
    assert WARNING not in caplog.text


def test_a_node_that_has_stopped_is_heard_by_a_controller_that_was_not_one_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has just been handed the quorum refuses heartbeats for a moment: it does not know everything yet."""
    beat = Controller.beat
    refused: list[Beat] = []

    async def refuse_first(controller: Controller, said: Beat) -> BeatAnswer:
        if said.is_gone and not refused:
            refused.append(said)
            raise NotController(None)
        return await beat(controller, said)

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        host = played.cluster.controller()
        assert host is not None
        assert await host.stop()
        await played.until(lambda: played.cluster.controller() is not None)
        assert refused
        assert state_of(played, host.name) is NodeState.FENCED

    monkeypatch.setattr(Controller, "beat", refuse_first)
    in_cluster(play)


def state_of(played: PlayedCluster, name: str) -> NodeState:
    """As the controller knows."""
    controller = played.cluster.controller()
    assert controller is not None
    node = played.node(controller.name)._metadata.catalog.node(name)
    assert node is not None
    return node.state


def watch_handover(
    monkeypatch: pytest.MonkeyPatch, played: PlayedCluster, stopping: Node, seen: list[Handover]
) -> None:
    """`drain` is what comes after `leave`: from then on writes are refused."""
    drain = Node.drain

    async def look_and_drain(node: Node) -> None:
        if node is stopping:
            assert node.cluster is not None
            found = Handover(node.cluster.replication.led(), node._quorum.leader)
            if found.controller is not None and found.controller != node._quorum.name:
                other = played.node(found.controller)
                found.is_led = other._quorum.raft.is_leader
                found.counts.append(other._metadata.catalog.partitions.leader_count(node.directory.number))
            seen.append(found)
        await drain(node)

    monkeypatch.setattr(Node, "drain", look_and_drain)


def leader_name(played: PlayedCluster, part: Part) -> str:
    controller = played.cluster.controller()
    assert controller is not None
    catalog = played.node(controller.name)._metadata.catalog
    node = catalog.node_by_number(catalog.partition(*part).leader)
    assert node is not None
    return node.name


async def read_back(played: PlayedCluster, part: Part) -> dict[int, str]:
    """All values by offset, from whoever leads now; each of them once, so two of one value are two of its offsets."""
    kinds = requests("fetch")
    found: dict[int, str] = {}
    leader = leader_name(played, part)
    start, end = 0, 1
    while start < end:
        wanted = kinds.FetchPartition(
            partition=part.partition, fetch_offset=start, partition_max_bytes=1_000_000
        )
        answer = await played.client.ask(
            leader,
            "fetch",
            12,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=0,
            topics=[kinds.FetchTopic(topic=part.topic, partitions=[wanted])],
        )
        (one,) = answer.responses[0].partitions
        assert one.error_code == 0
        records = read_records(one.records or b"", start)
        found |= records.values
        start, end = records.next_offset, one.high_watermark
    return found


def test_the_only_replica_of_a_partition_stops_when_it_has_waited_in_vain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(played: PlayedCluster) -> float:
        await played.create(replication_factor=1)
        return await stop_s(played, await played.leader())

    taken_s = in_cluster(play)
    assert LEAVE_S <= taken_s < LEAVE_S + ENDING_S_MAX
    assert warnings_of(caplog) == 1


def test_a_node_that_is_left_alone_stops_when_it_has_waited_in_vain(caplog: pytest.LogCaptureFixture) -> None:
    async def play(played: PlayedCluster) -> float:
        await played.create(replication_factor=3)
        leader = await played.leader()
        for name, host in played.cluster.hosts.items():
            if name != leader:
                await host.crash(power_cut=False)
        return await stop_s(played, leader)

    taken_s = in_cluster(play)
    assert LEAVE_S <= taken_s < LEAVE_S + ENDING_S_MAX
    assert warnings_of(caplog) == 1


async def stop_s(played: PlayedCluster, name: str) -> float:
    host = played.cluster.hosts[name]
    began = played.loop.time()
    assert await host.stop()
    return played.loop.time() - began


def warnings_of(caplog: pytest.LogCaptureFixture) -> int:
    return sum(WARNING in record.getMessage() for record in caplog.records)
