"""Whom clients are told of: nodes that nobody hears of are still members, and who leads counts as soon as it is decided."""

from __future__ import annotations

from tests.support.catalogs import CatalogRun

from goqueue.model.limits import Limits
from goqueue.model.settings import TopicSettings
from goqueue.node.config import ClusterConfig, NodeConfig, Peer
from goqueue.node.directory import Directory
from goqueue.node.metadata import Metadata
from goqueue.node.topic_table import OpenTopic, TopicTable
from goqueue.sim.broker import SimClock
from goqueue.sim.loop import SimLoop, run

PEERS = tuple(Peer(f"n{number}", f"n{number}", 7000) for number in (1, 2, 3))


def directory_of(cluster: CatalogRun) -> Directory:
    async def make(loop: SimLoop) -> Directory:
        metadata = Metadata(Limits(), TopicSettings(), SimClock(loop), 1_000)
        metadata.catalog = cluster.catalog
        return Directory(NodeConfig(node_id="n1", cluster=ClusterConfig(peers=PEERS)), metadata)

    return run(make, seed=1)


def test_a_node_that_is_not_heard_of_stays_a_member_and_is_not_asked() -> None:
    cluster = CatalogRun(3)
    directory = directory_of(cluster)
    cluster.fence(2)
    assert [one.name for one in directory.brokers()] == ["n1", "n3"]
    assert [(one.name, one.kafka) for one in directory.members()] == [
        ("n1", "n1:9092"),
        ("n2", "n2:9092"),
        ("n3", "n3:9092"),
    ]


def test_a_leader_is_told_before_the_node_has_followed() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2, 3)
    facts = cluster.catalog.find("t")
    assert facts is not None
    table = TopicTable()
    topic = OpenTopic(facts, TopicSettings(), 1, {}, cluster.catalog.partitions_of("t"))
    table.put(topic)
    cluster.fence(1)
    table.note_states("t", cluster.catalog.partitions_of("t"))
    assert topic.states[0].leader == 2
    table.note_states(
        "t", cluster.catalog.partitions_of("t") * 2
    )  # it has grown, and is not open so far here
    assert len(topic.states) == 1
    table.note_states("another", ())
