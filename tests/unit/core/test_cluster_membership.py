"""Nodes register, are fenced, drain and are removed."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.support.catalogs import CatalogRun, endpoints

from goqueue.core.catalog import (
    AlterPartitions,
    ClusterNamed,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    FenceNode,
    InSyncProposal,
    NameCluster,
    NodeRegistered,
    RegisterNode,
    RemoveNode,
    UndrainNode,
    UnfenceNode,
)
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.core.cluster.partitions import NEVER, NO_LEADER, STANDALONE, PartitionState
from goqueue.model.cluster_errors import NameTaken, NodeNotFound, WrongCluster
from goqueue.model.errors import InvalidRequest


def number_of(cluster: CatalogRun, name: str) -> int:
    event, *_ = cluster.run(RegisterNode(name, f"{name}/1", endpoints(name)))
    assert isinstance(event, NodeRegistered)
    return event.number


def state_of(cluster: CatalogRun, number: int) -> NodeState:
    entry = cluster.catalog.node_by_number(number)
    assert entry is not None
    return entry.state


def test_a_registered_node_is_fenced_until_it_is_ready() -> None:
    cluster = CatalogRun()
    cluster.run(RegisterNode("n7", "x", endpoints("n7"), "r", "1.2"))
    assert cluster.catalog.nodes() == [NodeEntry("n7", 7, "x", endpoints("n7"), "r", "1.2", NodeState.FENCED)]
    cluster.run(UnfenceNode("n7", "x"))
    assert cluster.catalog.node("n7") == cluster.catalog.node_by_number(7)
    assert state_of(cluster, 7) is NodeState.ALIVE
    assert cluster.catalog.node("n8") is None
    assert cluster.catalog.node_by_number(8) is None


def test_it_is_a_cluster_as_soon_as_a_node_has_registered() -> None:
    assert not CatalogRun().catalog.is_clustered
    assert CatalogRun(1).catalog.is_clustered


def test_numbers_are_those_of_the_names_or_the_smallest_that_are_free() -> None:
    cluster = CatalogRun()
    names = ["b-3", "alpha", "beta", "c3", "n0", "n-007", "n99999999999", "n2147483647", "x2147483648"]
    assert [number_of(cluster, name) for name in names] == [3, 1, 2, 4, 5, 7, 6, 2147483647, 8]
    assert [node.number for node in cluster.catalog.nodes()] == [1, 2, 3, 4, 5, 6, 7, 8, 2147483647]


def test_a_number_stays_with_its_name_even_when_the_node_was_removed() -> None:
    cluster = CatalogRun()
    assert [number_of(cluster, name) for name in ("a", "b")] == [1, 2]
    cluster.run(RemoveNode("a"))
    assert number_of(cluster, "c") == 3
    assert number_of(cluster, "d1") == 4
    assert number_of(cluster, "a") == 1


def test_topics_from_before_the_cluster_are_those_of_its_first_node() -> None:
    cluster = CatalogRun()
    cluster.run(CreateTopic("t", 1, {}))
    assert cluster.state() == STANDALONE
    assert number_of(cluster, "n3") == 1
    assert cluster.state() == PartitionState((1,), (1,), NO_LEADER, leader_epoch=0, epoch=1)
    cluster.run(UnfenceNode("n3", "n3/1"))
    assert cluster.state() == PartitionState((1,), (1,), 1, leader_epoch=1, epoch=2)
    assert number_of(cluster, "n4") == 4


def test_registering_twice_in_one_incarnation_changes_nothing() -> None:
    cluster = CatalogRun(1)
    assert cluster.run(RegisterNode("n1", cluster.incarnation(1), endpoints("n1"))) == []
    assert state_of(cluster, 1) is NodeState.ALIVE


def test_commands_of_an_older_incarnation_are_ignored() -> None:
    cluster = CatalogRun(1)
    old = cluster.incarnation(1)
    cluster.register(1)
    assert cluster.run(UnfenceNode("n1", old)) == []
    cluster.unfence(1)
    assert cluster.run(FenceNode("n1", old)) == []
    assert state_of(cluster, 1) is NodeState.ALIVE
    assert cluster.unfence(1) == []


def test_what_is_not_there_is_not_found() -> None:
    cluster = CatalogRun(1)
    for command in (
        UnfenceNode("x", ""),
        FenceNode("x", ""),
        DrainNode("x"),
        UndrainNode("x"),
        RemoveNode("x"),
    ):
        with pytest.raises(NodeNotFound, match="no node 'x'"):
            cluster.run(command)


# ---------------------------------------------------------------- starts


def test_a_start_takes_the_node_out_of_in_sync_sets_with_others() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2, name="shared", min_in_sync=2)
    cluster.create(1, name="alone")
    cluster.start(1)
    shared, alone = cluster.state("shared"), cluster.state("alone")
    assert (shared.in_sync, shared.eligible, shared.leader) == ((2,), (1,), 2)
    assert (alone.in_sync, alone.leader) == ((1,), 1)


def test_a_start_leaves_it_eligible_where_too_few_are_left() -> None:
    """It has fsynced all that counts as committed: neither a crash nor a power cut takes that away."""
    for is_fenced in (True, False):
        cluster = CatalogRun(3)
        cluster.create(1, 2, min_in_sync=2)
        if is_fenced:
            cluster.fence(1)
            assert cluster.state().eligible == (1,)
        cluster.start(1)
        assert (cluster.state().in_sync, cluster.state().eligible) == ((2,), (1,))


def test_an_eligible_one_that_has_lost_something_is_so_no_more() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2, min_in_sync=2)
    cluster.start(1)
    assert cluster.state().eligible == (1,)
    cluster.register(1, lost=[("t", 0)])
    assert (cluster.state().in_sync, cluster.state().eligible) == ((2,), ())
    cluster.fence(2)
    cluster.unfence(1)
    assert cluster.state().leader == NO_LEADER


@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_folder_that_does_not_know_who_registered_last_has_lost_all_that_it_held(is_in_sync: bool) -> None:
    """It is a copy from before that, or what stood still meanwhile."""
    cluster = CatalogRun(3)
    cluster.create(1, 2, name="a", min_in_sync=2)
    cluster.create(1, 2, name="b", min_in_sync=2)
    cluster.create(1, name="alone")
    older = [cluster.incarnation(1)]
    cluster.start(1)
    if is_in_sync:
        for name in ("a", "b"):
            cluster.propose(2, 1, topic=name)
    before = cluster.state("a")
    assert (before.in_sync, before.eligible) == (((1, 2), ()) if is_in_sync else ((2,), (1,)))
    cluster.register(1, previous=older)
    for name in ("a", "b"):
        assert (cluster.state(name).in_sync, cluster.state(name).eligible) == ((2,), ())
    cluster.unfence(1)
    cluster.fence(2)
    assert cluster.state("a").leader == NO_LEADER
    alone = cluster.state("alone")
    assert (alone.leader, alone.in_sync, alone.unclean_epoch > NEVER) == (1, (1,), True)
    assert cluster.replayed().snapshot() == cluster.catalog.snapshot()


@pytest.mark.parametrize("knows", ["it", "it and others", "none"])
def test_a_folder_that_knows_who_registered_last_or_knows_of_nobody_has_lost_nothing(knows: str) -> None:
    """A version from before that was noted knows of nobody. One that has died may have registered or not."""
    cluster = CatalogRun(2)
    cluster.create(1, 2, min_in_sync=2)
    last = cluster.incarnation(1)
    cluster.register(1, previous={"it": [last], "it and others": ["x", last, "y"], "none": []}[knows])
    assert (cluster.state().in_sync, cluster.state().eligible) == ((2,), (1,))


def test_a_process_that_stood_still_does_not_take_its_name_back() -> None:
    """Whether the one that has it now is of another folder is told by what the folder knows. It may have been removed, too."""
    cluster = CatalogRun(2)
    former = cluster.incarnation(1)
    cluster.register(1)
    current = cluster.incarnation(1)
    again = RegisterNode("n1", former, endpoints("n1"), "", "1", previous=[former], is_again=True)
    with pytest.raises(NameTaken):
        cluster.run(again)
    assert cluster.incarnation(1) == current
    cluster.run(structs.replace(again, previous=[current, former]))
    assert cluster.incarnation(1) == former
    cluster.run(RemoveNode("n1"))
    cluster.run(again)
    assert cluster.incarnation(1) == former


def test_a_node_that_is_new_has_nothing_to_lose_whatever_its_folder_knows() -> None:
    """It was removed, say."""
    cluster = CatalogRun(2)
    cluster.fence(2)
    cluster.run(RemoveNode("n2"))
    cluster.register(2, previous=["x"])
    cluster.create(1, 2)
    assert state_of(cluster, 2) is NodeState.FENCED


@pytest.mark.parametrize("away", [1, 2, 3])
def test_after_a_power_cut_of_all_the_others_lead_without_the_one_that_stays_away(away: int) -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2, 3, min_in_sync=2)
    first, second = (number for number in (1, 2, 3) if number != away)
    cluster.start(first)
    cluster.start(second)
    cluster.fence(away)
    state = cluster.state()
    assert state.leader in (first, second)
    assert state.in_sync == (state.leader,)
    other = second if state.leader == first else first
    cluster.propose(state.leader, other)  # it has caught up
    cluster.register(away)
    cluster.register(away, lost=[("t", 0)])
    cluster.unfence(away)
    state = cluster.state()
    assert set(state.in_sync) == {first, second}
    assert (state.leader in (first, second), state.eligible, state.unclean_epoch) == (True, (), NEVER)


def test_the_last_in_sync_that_is_killed_leads_on_where_an_eligible_one_is_dead() -> None:
    """1 is that one, 2 is dead, and 3 is behind since before."""
    cluster = CatalogRun(3)
    cluster.create(3, 1, 2, min_in_sync=2)
    cluster.start(3)
    cluster.fence(2)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1,), (2,))
    cluster.start(1)
    assert (cluster.state().in_sync, cluster.state().eligible, cluster.state().leader) == ((1,), (2,), 1)
    cluster.register(2)
    cluster.register(2, lost=[("t", 0)])
    cluster.unfence(2)
    state = cluster.state()
    assert (state.in_sync, state.eligible, state.leader, state.unclean_epoch) == ((1,), (), 1, NEVER)


def test_one_that_was_killed_leads_where_the_other_in_sync_has_lost_its_disk_meanwhile() -> None:
    """It has everything, and the one that was the last in sync has nothing."""
    cluster = CatalogRun(3)
    cluster.create(3, 1, 2, min_in_sync=2)
    cluster.start(3)
    cluster.start(1)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((2,), (1,))
    cluster.register(2)
    cluster.register(2, lost=[("t", 0)])
    cluster.unfence(2)
    state = cluster.state()
    assert (state.in_sync, state.eligible, state.leader, state.unclean_epoch) == ((1,), (), 1, NEVER)


def test_nobody_who_leaves_is_eligible_where_those_who_stay_may_commit() -> None:
    """With `min.insync.replicas` 1 the last one in sync may have acknowledged what nobody else has."""
    cluster = CatalogRun(3)
    cluster.create(1, 2, 3, min_in_sync=1)
    cluster.start(1)
    cluster.start(2)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((3,), ())
    cluster.fence(3)
    assert cluster.state().leader == NO_LEADER


def test_a_lost_folder_counts_for_its_partition_only() -> None:
    cluster = CatalogRun(2)
    cluster.create(1, 2, name="a", min_in_sync=2)
    cluster.create(1, 2, name="b", min_in_sync=2)
    cluster.register(1, lost=[("a", 0)])
    assert cluster.state("a").eligible == ()
    assert cluster.state("b").eligible == (1,)


def test_the_eligible_count_when_the_last_in_sync_comes_back_incomplete() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2, 3, min_in_sync=3)
    cluster.fence(2, 3, 1)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1,), (2, 3))
    cluster.register(1)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1,), (2, 3))  # it was killed, no more
    cluster.register(1, lost=[("t", 0)])
    cluster.unfence(1)
    state = cluster.state()
    assert (state.in_sync, state.eligible, state.leader) == ((2,), (3,), NO_LEADER)
    cluster.unfence(3)
    state = cluster.state()
    assert (state.in_sync, state.eligible, state.leader) == ((3,), (2,), 3)


def test_the_only_one_in_sync_that_has_lost_its_data_leads_under_an_epoch_that_lets_others_follow_it() -> (
    None
):
    """They may have committed records that it has lost, and cut those only where their newest epoch is from before an unclean one."""
    cluster = CatalogRun(2)
    cluster.create(1, 2)
    cluster.fence(2)
    before = cluster.state()
    assert (before.in_sync, before.eligible, before.unclean_epoch) == ((1,), (), NEVER)
    cluster.register(1, lost=[("t", 0)])
    lost = cluster.state()
    assert (lost.leader, lost.leader_epoch, lost.unclean_epoch) == (NO_LEADER, 1, 1)
    cluster.unfence(1)
    again = cluster.state()
    assert (again.leader, again.in_sync) == (1, (1,))
    assert before.leader_epoch < again.unclean_epoch <= again.leader_epoch
    assert cluster.replayed().snapshot() == cluster.catalog.snapshot()


def test_a_loss_is_new_to_a_partition_that_nobody_leads() -> None:
    """The node registers first, finds out then what it has lost, and registers again."""
    cluster = CatalogRun(2)
    cluster.create(1, 2)
    cluster.fence(2)
    cluster.register(1)
    before = cluster.state()
    assert (before.leader, before.leader_epoch) == (NO_LEADER, 1)
    cluster.register(1, lost=[("t", 0)])
    assert (cluster.state().leader_epoch, cluster.state().unclean_epoch) == (2, 2)
    cluster.unfence(1)
    assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().unclean_epoch) == (1, 3, 2)


def test_the_only_one_in_sync_leads_on_as_before_where_it_has_lost_nothing() -> None:
    """Also after a crash: what was committed is on its disk."""
    cluster = CatalogRun(2)
    cluster.create(1, 2)
    cluster.create(1, name="lost")
    cluster.fence(2)
    cluster.register(1, lost=[("lost", 0)])
    cluster.unfence(1)
    assert (cluster.state().leader, cluster.state().unclean_epoch) == (1, NEVER)


def test_a_loss_is_no_reason_for_others_to_give_up_records_where_somebody_is_eligible() -> None:
    cluster = CatalogRun(2)
    cluster.create(1, 2, min_in_sync=2)
    cluster.fence(2)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1,), (2,))
    cluster.register(1, lost=[("t", 0)])
    cluster.unfence(1)
    state = cluster.state()
    assert (state.in_sync, state.leader, state.unclean_epoch) == ((2,), NO_LEADER, NEVER)
    cluster.unfence(2)
    assert (cluster.state().leader, cluster.state().unclean_epoch) == (2, NEVER)


# ---------------------------------------------------------------- proposals under way


@pytest.mark.parametrize("lost", [[], [("t", 0)]])
def test_a_proposal_to_let_in_a_node_that_has_started_again_since_is_stale(
    lost: list[tuple[str, int]],
) -> None:
    """It counts on what the process before had. The node is neither in sync nor eligible, so nothing but the epoch changes."""
    cluster = CatalogRun(3)
    cluster.create(1, 2, 3, min_in_sync=2)
    cluster.start(3)
    before = cluster.state()
    assert (before.in_sync, before.eligible) == ((1, 2), ())
    late = InSyncProposal("t", 0, before.leader_epoch, before.epoch, [1, 2, 3])
    cluster.register(3, lost=lost)
    cluster.unfence(3)
    assert cluster.state() == structs.replace(before, epoch=before.epoch + 1)
    assert cluster.run(AlterPartitions(1, cluster.incarnation(1), [late])) == []
    assert cluster.propose(1, 2, 3) != []
    assert cluster.replayed().snapshot() == cluster.catalog.snapshot()


def test_a_start_counts_once_for_what_the_node_holds_and_not_for_the_rest() -> None:
    cluster = CatalogRun(4)
    cluster.create(1, 2, name="elsewhere")
    cluster.create(1, 3, name="shared")
    cluster.create(4, 3, name="unled")
    cluster.fence(3, 4)
    epochs = [cluster.state(name).epoch for name in ("elsewhere", "shared", "unled")]
    cluster.register(3)
    again = [cluster.state(name).epoch for name in ("elsewhere", "shared", "unled")]
    assert again == [epochs[0], epochs[1] + 1, epochs[2]]
    cluster.run(RegisterNode("n3", cluster.incarnation(3), endpoints("n3")))
    assert [cluster.state(name).epoch for name in ("elsewhere", "shared", "unled")] == again


def test_a_proposal_of_a_leader_before_is_stale_where_nobody_led_when_a_node_started_again() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 3)
    cluster.fence(3)
    before = cluster.state()
    late = InSyncProposal("t", 0, before.leader_epoch, before.epoch, [1, 3])
    cluster.fence(1)
    unled = cluster.state()
    assert unled.leader == NO_LEADER
    cluster.start(3)
    assert cluster.state() == unled
    cluster.unfence(1)
    assert cluster.state().leader == 1
    for epoch in (before.epoch, unled.epoch, cluster.state().epoch):
        again = structs.replace(late, epoch=epoch)
        assert cluster.run(AlterPartitions(1, cluster.incarnation(1), [again])) == []


# ---------------------------------------------------------------- draining


def test_a_draining_node_hands_its_leaderships_over_and_stays_in_sync() -> None:
    cluster = CatalogRun(3)
    cluster.create(1, 2)
    cluster.create(1, name="alone")
    cluster.drain(1)
    assert cluster.state() == PartitionState((1, 2), (1, 2), 2, leader_epoch=1, epoch=1)
    assert cluster.catalog.led_by(1) == [("alone", 0)]  # nobody else can
    cluster.run(UndrainNode("n1"))
    assert cluster.state().leader == 2
    assert cluster.run(UndrainNode("n1")) == []


def test_a_draining_leader_goes_as_soon_as_another_is_in_sync() -> None:
    cluster = CatalogRun(2)
    cluster.create(1, 2)
    cluster.propose(1)
    cluster.drain(1)
    assert cluster.state().leader == 1
    cluster.propose(1, 2)
    assert cluster.state().leader == 2


def test_when_all_drain_leaderships_stay() -> None:
    cluster = CatalogRun(2)
    cluster.create(1, 2)
    cluster.drain(2)
    cluster.drain(1)
    assert (cluster.state().leader, cluster.state().epoch) == (1, 0)
    cluster.run(UndrainNode("n2"))
    assert cluster.state().leader == 2


def test_draining_lasts_as_long_as_the_incarnation() -> None:
    cluster = CatalogRun(2)
    cluster.drain(1)
    cluster.fence(1)
    assert cluster.run(DrainNode("n1")) == []
    cluster.unfence(1)
    assert state_of(cluster, 1) is NodeState.DRAINING
    cluster.start(1)
    assert state_of(cluster, 1) is NodeState.ALIVE


def test_a_node_that_was_fenced_while_it_drained_can_be_undrained() -> None:
    cluster = CatalogRun(2)
    cluster.drain(1)
    cluster.fence(1)
    cluster.run(UndrainNode("n1"))
    assert state_of(cluster, 1) is NodeState.FENCED
    assert cluster.run(UndrainNode("n1")) == []
    cluster.unfence(1)
    assert state_of(cluster, 1) is NodeState.ALIVE


# ---------------------------------------------------------------- removal, names


def test_only_a_fenced_node_without_replicas_is_removed() -> None:
    cluster = CatalogRun(2)
    for index in range(12):
        cluster.create(1, name=f"t{index:02}")
    with pytest.raises(InvalidRequest, match="node 'n1' is alive; stop it"):
        cluster.run(RemoveNode("n1"))
    cluster.fence(1)
    with pytest.raises(InvalidRequest, match=r"12 topics: t00, t01, .*t09 and 2 more; reassign"):
        cluster.run(RemoveNode("n1"))
    for index in range(12):
        cluster.run(DeleteTopic(f"t{index:02}"))
    cluster.run(RemoveNode("n1"))
    assert [node.name for node in cluster.catalog.nodes()] == ["n2"]


def test_a_cluster_is_named_once() -> None:
    cluster = CatalogRun()
    assert cluster.run(NameCluster("c")) == [ClusterNamed("c")]
    assert cluster.catalog.cluster_id == "c"
    assert cluster.run(NameCluster("c")) == []
    with pytest.raises(WrongCluster, match="belongs to cluster 'c', not to 'd'"):
        cluster.run(NameCluster("d"))
