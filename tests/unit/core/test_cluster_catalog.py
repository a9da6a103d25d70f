"""Events and commands as bytes, companions, producer ids, snapshots, and that a change costs what it changes."""

from __future__ import annotations

import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import msgspec
import pytest
from tests.support.catalogs import CatalogRun, endpoints

from goqueue.core.catalog import (
    AlterPartitions,
    AlterTopic,
    BumpLeaderEpoch,
    Catalog,
    ClusterNamed,
    Command,
    CompanionMade,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    ElectLeaders,
    Event,
    FenceNode,
    GrowTopic,
    InSyncProposal,
    MakeCompanion,
    MakeReceiptKey,
    NameCluster,
    NodeRegistered,
    NodeRemoved,
    NodeStateChanged,
    PartitionChange,
    PartitionsChanged,
    ProducerIdReserved,
    ProducerIdsReserved,
    ReassignPartitions,
    RegisterNode,
    RemoveNode,
    ReserveProducerId,
    ReserveProducerIds,
    TopicCreated,
    TopicDeleted,
    TopicGrown,
    UndrainNode,
    UnfenceNode,
    decode_command,
    decode_event,
    decode_events,
    encode_command,
    encode_event,
    encode_events,
)
from goqueue.core.cluster.commands import AdvancePlan, CancelPlan, MakePlan, PausePlan, ResumePlan
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import STANDALONE, PartitionState
from goqueue.core.cluster.plans import Move
from goqueue.core.cluster.snapshot import Snapshot
from goqueue.model.errors import InvalidRequest, PartitionNotFound, StorageError, TopicNotFound
from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings

# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            TopicCreated("a", 3, 2, {"retention.ms": "60"}, 5),
            '{"event":"TopicCreated","name":"a","id":3,"partition_count":2,"overrides":{"retention.ms":"60"},"created_ms":5}',
        ),
        (TopicGrown("a", 7), '{"event":"TopicGrown","name":"a","partition_count":7}'),
        (
            TopicGrown("a", 2, [[1, 2]]),
            '{"event":"TopicGrown","name":"a","partition_count":2,"assignments":[[1,2]]}',
        ),
        (TopicDeleted("a"), '{"event":"TopicDeleted","name":"a"}'),
        (ProducerIdReserved(4), '{"event":"ProducerIdReserved","id":4}'),
        (ProducerIdsReserved(4, 10), '{"event":"ProducerIdsReserved","start":4,"count":10}'),
        (ClusterNamed("c"), '{"event":"ClusterNamed","id":"c"}'),
        (NodeStateChanged("n", NodeState.ALIVE), '{"event":"NodeStateChanged","name":"n","state":"alive"}'),
        (NodeRemoved("n", 3), '{"event":"NodeRemoved","name":"n","number":3}'),
        (CompanionMade("a", "ledger"), '{"event":"CompanionMade","topic":"a","kind":"ledger"}'),
        (
            PartitionsChanged([PartitionChange("a", 0, (1, 2), (1,), 1, 4, 7, (2,))]),
            '{"event":"PartitionsChanged","changes":[["a",0,[1,2],[1],1,4,7,[2],[],[],-1]]}',
        ),
        (
            NodeRegistered("n", 3, "x", endpoints("n"), "r", "1"),
            '{"event":"NodeRegistered","name":"n","number":3,"incarnation":"x","endpoints":'
            '{"http":"n:8080","kafka":"n:9092","cluster":"n:7000"},"rack":"r","version":"1"}',
        ),
    ],
)
def test_events_are_stored_as_ever(event: Event, text: str) -> None:
    assert encode_event(event) == text.encode()
    assert decode_event(text.encode()) == event
    assert decode_events(text.encode()) == [event]  # as in logs from before there were clusters
    assert decode_events(encode_events([event, event])) == [event, event]


def test_the_page_of_the_format_names_every_event_and_field() -> None:
    page = (Path(__file__).parents[3] / "docs/format/metadata.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for event in get_args(Event):
        for field in event.__struct_fields__:
            assert f"`{field}`" in rows[event.__name__]
    fields = [line.split("`")[1] for line in page.splitlines() if re.match(r"\| \d+ \| `", line)]
    assert tuple(fields) == (*PartitionChange.__struct_fields__, *Move.__struct_fields__)
    for field in Snapshot.__struct_fields__:
        assert f"`{field}`" in page


def test_a_decision_without_events_is_bytes_too() -> None:
    assert decode_events(encode_events([])) == []


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic("a", 1, {"retention.ms": "1"}, replication_factor=2, assignments=[[1, 2]]),
        AlterTopic("a", {"retention.ms": None}),
        GrowTopic("a", 2, [[1]]),
        DeleteTopic("a"),
        ReserveProducerId(),
        ReserveProducerIds(7),
        MakeReceiptKey("k"),
        NameCluster("c"),
        RegisterNode("n", "x", endpoints("n"), "r", "1", lost=[("a", 0)]),
        UnfenceNode("n", "x"),
        FenceNode("n", "x"),
        DrainNode("n"),
        UndrainNode("n"),
        RemoveNode("n"),
        AlterPartitions(1, "x", [InSyncProposal("a", 0, 1, 2, [1])]),
        ElectLeaders([("a", 0)], "unclean"),
        ReassignPartitions([("a", 0, [1]), ("a", 1, None)]),
        BumpLeaderEpoch("a", 0, 9),
        MakeCompanion("a", "schedule"),
        MakePlan([("a", 0, [1, 2])], throttle=5, parallel=2),
        MakePlan(drain="n"),
        MakePlan(is_balance=True, topics=["a"]),
        PausePlan(1),
        ResumePlan(1),
        CancelPlan(1),
        AdvancePlan(1),
    ],
)
def test_commands_travel_as_json(command: Command) -> None:
    data = encode_command(command)
    assert msgspec.json.decode(data)["command"] == type(command).__name__
    assert decode_command(data) == command


# ---------------------------------------------------------------- partitions, companions, producer ids


def test_unknown_partitions_are_not_found() -> None:
    cluster = CatalogRun(1)
    cluster.create(1)
    with pytest.raises(PartitionNotFound, match="has no partition 1"):
        cluster.state("t", 1)
    with pytest.raises(PartitionNotFound):
        cluster.state("t", -1)
    with pytest.raises(TopicNotFound):
        cluster.catalog.partitions_of("x")


def test_a_companion_is_made_once_and_goes_with_its_topic() -> None:
    cluster = CatalogRun(1)
    cluster.create(1)
    assert cluster.run(MakeCompanion("t", "ledger")) == [CompanionMade("t", "ledger")]
    assert cluster.run(MakeCompanion("t", "ledger")) == []
    cluster.run(MakeCompanion("t", "schedule"))
    assert cluster.catalog.companions("t") == {"ledger", "schedule"}
    cluster.run(DeleteTopic("t"))
    assert cluster.catalog.companions("t") == frozenset()
    with pytest.raises(TopicNotFound):
        cluster.run(MakeCompanion("t", "ledger"))


def test_blocks_of_producer_ids_do_not_overlap() -> None:
    cluster = CatalogRun()
    assert cluster.run(ReserveProducerIds(10)) == [ProducerIdsReserved(1, 10)]
    assert cluster.run(ReserveProducerId()) == [ProducerIdReserved(11)]
    assert cluster.run(ReserveProducerIds(5)) == [ProducerIdsReserved(12, 5)]
    assert cluster.run(ReserveProducerId()) == [ProducerIdReserved(17)]
    for count in (0, -1, 1_000_001):
        with pytest.raises(InvalidRequest, match="a block has 1 to 1000000"):
            cluster.run(ReserveProducerIds(count))


def test_min_in_sync_of_a_topic_without_its_own_is_the_default() -> None:
    catalog = Catalog(Limits(), TopicSettings(min_insync_replicas=2))
    catalog.apply(TopicCreated("a", 1, 1, {}, 0))
    catalog.apply(TopicCreated("b", 2, 1, {"min.insync.replicas": "3"}, 0))
    assert catalog.rules_of("a").min_insync_replicas == 2
    assert catalog.rules_of("b").min_insync_replicas == 3
    with pytest.raises(TopicNotFound):
        catalog.rules_of("c")


# ---------------------------------------------------------------- snapshots


def test_a_snapshot_restores_everything_over_whatever_was_there() -> None:
    cluster = CatalogRun(4)
    cluster.create(1, 2, 3, min_in_sync=2)
    cluster.create(2, name="gone")
    cluster.run(DeleteTopic("gone"))
    cluster.run(ReassignPartitions([("t", 0, [4, 1])]))
    cluster.run(MakeCompanion("t", "ledger"))
    cluster.run(NameCluster("c"))
    cluster.run(MakeReceiptKey("k"))
    cluster.run(ReserveProducerIds(10))
    cluster.drain(3)
    cluster.fence(3)
    cluster.register(9)
    cluster.run(RemoveNode("n9"))
    other = CatalogRun(2)
    other.create(1, name="old")
    other.catalog.restore(cluster.catalog.snapshot())
    assert other.catalog.snapshot() == cluster.catalog.snapshot() == cluster.replayed().snapshot()
    assert [topic.name for topic in other.catalog.topics()] == ["t"]
    assert (other.catalog.was_deleted("gone"), other.catalog.was_deleted("old")) == (True, False)
    assert (other.catalog.cluster_id, other.catalog.receipt_key) == ("c", "k")
    other.run(ReassignPartitions([("t", 0, None)]))
    assert other.state().replicas == (1, 2, 3)
    other.unfence(3)
    node = other.catalog.node("n3")
    assert node is not None
    assert node.state is NodeState.DRAINING
    (registered,) = other.run(RegisterNode("n9", "z", endpoints("n9")))
    assert isinstance(registered, NodeRegistered)
    assert registered.number == 9
    assert other.run(ReserveProducerIds(1)) == [ProducerIdsReserved(11, 1)]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_topic_that_is_made_again_begins_above_the_epochs_of_the_deleted_one(is_restored: bool) -> None:
    """A node that has not heard of the deletion goes on asking in an epoch of the old topic. Its offsets are not those of the new
    one."""
    cluster = CatalogRun(3)
    cluster.raise_level()
    cluster.run(CreateTopic("t", 2, {}, assignments=[[1, 2], [3, 2]]))
    cluster.create(1, name="later")
    cluster.fence(3)
    cluster.unfence(3)
    assert [state.leader_epoch for state in cluster.catalog.partitions_of("t")] == [0, 1]
    cluster.run(DeleteTopic("t"))
    cluster.run(DeleteTopic("later"))  # its epochs are lower, and change nothing
    if is_restored:
        snapshot = cluster.catalog.snapshot()
        cluster.catalog = Catalog(Limits())
        cluster.catalog.restore(snapshot)
    cluster.run(CreateTopic("t", 2, {}, assignments=[[1, 2], [3, 2]]))
    states = cluster.catalog.partitions_of("t")
    assert [(state.leader, state.in_sync, state.leader_epoch) for state in states] == [
        (1, (1, 2), 2),
        (3, (3, 2), 2),
    ]
    assert cluster.replayed().snapshot() == cluster.catalog.snapshot()


def test_a_topic_that_is_made_again_has_newer_epochs_each_time_and_a_new_name_has_none() -> None:
    cluster = CatalogRun(3)
    cluster.raise_level()
    for epoch in range(3):
        assert cluster.create(1, 2).leader_epoch == epoch
        cluster.run(DeleteTopic("t"))
    assert cluster.create(1, 2, name="never-there").leader_epoch == 0


def test_partitions_that_such_a_topic_gets_later_are_above_them_too() -> None:
    cluster = CatalogRun(3)
    cluster.raise_level()
    cluster.create(1, 2)
    cluster.run(DeleteTopic("t"))
    cluster.create(1, 2)
    cluster.run(GrowTopic("t", 2))
    assert [state.leader_epoch for state in cluster.catalog.partitions_of("t")] == [1, 1]


def test_a_snapshot_of_a_standalone_node_keeps_its_own_epochs() -> None:
    cluster = CatalogRun()
    cluster.run(CreateTopic("t", 3, {}))
    restored = Catalog(Limits())
    restored.restore(cluster.catalog.snapshot())
    assert restored.partitions_of("t") == (STANDALONE,) * 3


def test_a_snapshot_of_a_newer_program_is_refused() -> None:
    data = Catalog(Limits()).snapshot().replace(b'"version":1', b'"version":2')
    with pytest.raises(StorageError, match="version 2; this program knows versions up to 1"):
        Catalog(Limits()).restore(data)


# ---------------------------------------------------------------- size


def large(topic_count: int, partition_count: int) -> Catalog:
    catalog = Catalog(Limits())
    for number in (1, 2, 3):
        catalog.apply(NodeRegistered(f"n{number}", number, "x", endpoints("n"), "", ""))
        catalog.apply(NodeStateChanged(f"n{number}", NodeState.ALIVE))
    for index in range(topic_count):
        assignments = [[1 + partition % 3, 1 + (partition + 1) % 3] for partition in range(partition_count)]
        catalog.apply(TopicCreated(f"t{index:03}", index + 1, partition_count, {}, 0, assignments))
    catalog.topics()
    return catalog


def cost(action: Callable[[], object]) -> tuple[int, int]:
    """Lines of Python that ran, and bytes allocated at once."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:  # what sys.settrace wants
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return lines, peak


def test_a_change_costs_what_it_changes_and_not_what_there_is() -> None:
    small, big = large(2, 10), large(100, 1_000)
    state = PartitionState((1, 2), (2,), 2, 1, 1)
    change = PartitionsChanged([PartitionChange.of("t001", 6, state)])
    proposal = AlterPartitions(1, "x", [InSyncProposal("t001", 3, 0, 0, [1])])
    actions: list[Callable[[Catalog], object]] = [
        lambda catalog: catalog.apply(change),
        lambda catalog: catalog.decide(proposal, 0),
        lambda catalog: catalog.apply(
            TopicGrown("t001", catalog.topic("t001").partition_count + 1, [[1, 2]])
        ),
        lambda catalog: catalog.apply(CompanionMade("t001", "ledger")),
        lambda catalog: catalog.apply(NodeStateChanged("n1", NodeState.DRAINING)),
    ]
    for action in actions:
        few, many = cost(lambda act=action: act(small)), cost(lambda act=action: act(big))  # type: ignore[misc]  # a bound lambda
        assert many[0] == few[0]
        assert many[1] < 7_000  # a copy of one topic's partitions alone would take 8,000


def test_a_large_catalogue_restores_from_its_snapshot() -> None:
    catalog = large(100, 1_000)
    restored = Catalog(Limits())
    restored.restore(catalog.snapshot())
    assert restored.led_by(2) == catalog.led_by(2)
    assert len(restored.led_by(1)) + len(restored.led_by(2)) + len(restored.led_by(3)) == 100_000
    assert restored.snapshot() == catalog.snapshot()
