"""Feature levels: nothing is decided that a node of the cluster does not understand."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import Catalog, CreateTopic
from goqueue.core.cluster.commands import DeleteTopic, GrowTopic, RaiseLevel
from goqueue.core.cluster.events import LevelRaised, ScalingChanged, decode_events
from goqueue.core.cluster.levels import BROUGHT, KEYED_LEVEL, LEVEL_NEWEST, LEVEL_OLDEST, level_of
from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.cluster.snapshot import decode_snapshot
from goqueue.model.cluster_errors import LevelTooLow
from goqueue.model.limits import Limits

KEYED = CreateTopic("keyed", 2, {"scaling": "keyed"})


def test_levels_follow_each_other_and_say_what_they_bring() -> None:
    assert sorted(BROUGHT) == list(range(LEVEL_OLDEST, LEVEL_NEWEST + 1))


def test_a_new_cluster_is_at_the_oldest_level_until_all_nodes_are_heard() -> None:
    run = CatalogRun(3)
    assert run.catalog.level == LEVEL_OLDEST
    assert run.raise_level(without=2) == []
    assert run.raise_level() == [LevelRaised(LEVEL_NEWEST)]
    assert run.catalog.level == LEVEL_NEWEST
    assert run.raise_level() == []


def test_a_node_that_has_started_again_has_to_be_heard_again() -> None:
    run = CatalogRun(2)
    heard = {node.name: node.incarnation for node in run.catalog.nodes()}
    run.register(2, level=1)
    assert run.run(RaiseLevel(LEVEL_NEWEST, heard)) == []


def test_what_an_older_node_does_not_know_is_refused_until_the_level_is_raised() -> None:
    run = CatalogRun(3)
    with pytest.raises(LevelTooLow, match=f"needs feature level {KEYED_LEVEL}, and level 1 is in force"):
        run.run(KEYED)
    run.run(CreateTopic("plain", 1, {}))
    run.raise_level()
    run.run(KEYED)
    assert any(isinstance(event, ScalingChanged) for event in run.run(GrowTopic("keyed", 4)))


def test_a_node_that_does_not_understand_the_level_in_force_cannot_join() -> None:
    run = CatalogRun(3)
    run.register(4, level=1)
    assert run.raise_level(level=1) == []
    run = CatalogRun(3)
    run.raise_level()
    with pytest.raises(
        LevelTooLow, match=r"'n4' .* understands feature level 1, and the cluster is at level 2"
    ):
        run.register(4, level=1)


def test_a_node_alone_has_nobody_to_wait_for_and_others_join_at_the_level_that_it_has_used() -> None:
    run = CatalogRun()
    assert run.catalog.level == LEVEL_NEWEST
    run.run(KEYED)
    with pytest.raises(LevelTooLow, match="understands feature level 1"):
        run.register(2, level=1)
    run.register(2)
    assert run.catalog.level == KEYED_LEVEL


def test_the_level_outlives_snapshots_and_is_left_out_of_those_of_the_oldest() -> None:
    run = CatalogRun(3)
    assert b'"level"' not in run.catalog.snapshot()  # a version from before there were levels reads it
    run.raise_level()
    other = Catalog(Limits())
    other.restore(run.catalog.snapshot())
    assert other.level == LEVEL_NEWEST
    assert other.snapshot() == run.catalog.snapshot()


def test_events_of_the_oldest_level_are_those_of_a_catalogue_without_anything_newer() -> None:
    run = CatalogRun(3)
    run.run(CreateTopic("plain", 3, {"retention.ms": "5"}))
    run.run(GrowTopic("plain", 4))
    assert {level_of(event) for data in run.log for event in decode_events(data)} == {LEVEL_OLDEST}


def made_again(run: CatalogRun) -> PartitionState:
    """A topic that had three leaders, and was deleted since."""
    run.create(1, 2, 3)
    run.fence(1)
    run.unfence(1)
    run.fence(2)
    run.unfence(2)
    assert run.state().leader_epoch == 2
    run.run(DeleteTopic("t"))
    return run.create(1, 2, 3)


def test_the_epochs_of_deleted_topics_are_not_remembered_at_the_oldest_level() -> None:
    run = CatalogRun(3)
    assert made_again(run) == PartitionState((1, 2, 3), (1, 2, 3), 1, leader_epoch=0, epoch=0)
    assert b'"epoch_free"' not in run.catalog.snapshot()  # a version from before reads it
    run.raise_level()
    run.run(DeleteTopic("t"))
    assert run.create(1, 2, 3).leader_epoch == 1
    assert run.replayed().snapshot() == run.catalog.snapshot()


@pytest.mark.parametrize(
    "data",
    [
        b'[{"event":"SomethingNew","x":1}]',
        b'[{"event":"ClusterNamed","id":"c","colour":"red"}]',
        b'{"event":"TopicDeleted","name":"t","why":"?"}',
        b'[{"event":"PartitionsChanged","changes":[["t",0,[1],[1],1,0,0,[],[],[],-1,7]]}]',
        b'[{"event":"ScalingChanged","topic":"t","scaling":{"unheard":1}}]',
    ],
)
def test_what_a_newer_version_has_written_is_an_error_and_not_skipped(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_events(data)


def test_a_snapshot_of_a_newer_version_is_an_error_too() -> None:
    known = msgspec.json.decode(CatalogRun(1).catalog.snapshot())
    mores: list[dict[str, object]] = [{"colours": []}, {"nodes": [known["nodes"][0] | {"colour": "red"}]}]
    for more in mores:
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            decode_snapshot(msgspec.json.encode(known | more))
