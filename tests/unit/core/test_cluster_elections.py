"""Who leads when nodes come and go."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import (
    AlterPartitions,
    AlterTopic,
    BumpLeaderEpoch,
    ElectLeaders,
    InSyncProposal,
    PartitionsChanged,
    ReassignPartitions,
)
from goqueue.core.cluster.elections import ElectionRules, settle
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState, new_partition
from goqueue.model.errors import PartitionNotFound, TopicNotFound


@pytest.fixture
def cluster() -> CatalogRun:
    return CatalogRun(4)


def test_a_new_partition_is_led_by_its_first_replica(cluster: CatalogRun) -> None:
    assert cluster.create(3, 1, 2) == PartitionState((3, 1, 2), (3, 1, 2), 3, leader_epoch=0, epoch=0)


def test_leadership_goes_to_the_next_replica_in_sync_when_the_leader_is_fenced(cluster: CatalogRun) -> None:
    cluster.create(3, 1, 2)
    cluster.fence(3)
    assert cluster.state() == PartitionState((3, 1, 2), (1, 2), 1, leader_epoch=1, epoch=1)


def test_a_replica_that_is_not_in_sync_is_not_elected(cluster: CatalogRun) -> None:
    cluster.create(3, 1, 2)
    cluster.propose(3, 2)
    cluster.fence(3)
    assert cluster.state().leader == 2


def test_the_last_member_stays_in_sync_and_nobody_leads_until_it_is_back(cluster: CatalogRun) -> None:
    cluster.create(3, 1)
    cluster.fence(1, 3)
    assert cluster.state() == PartitionState((3, 1), (3,), NO_LEADER, leader_epoch=1, epoch=2)
    cluster.start(1)
    assert cluster.state().leader == NO_LEADER
    assert cluster.catalog.led_by(NO_LEADER) == [("t", 0)]
    cluster.unfence(3)
    assert cluster.state() == PartitionState((3, 1), (3,), 3, leader_epoch=2, epoch=3)


def test_fencing_a_follower_changes_no_leader_epoch(cluster: CatalogRun) -> None:
    cluster.create(3, 1, 2)
    cluster.fence(2)
    assert cluster.state() == PartitionState((3, 1, 2), (3, 1), 3, leader_epoch=0, epoch=1)


def test_a_new_incarnation_leads_again_in_a_newer_epoch(cluster: CatalogRun) -> None:
    cluster.create(3)
    cluster.register(3)
    assert cluster.state() == PartitionState((3,), (3,), NO_LEADER, leader_epoch=1, epoch=1)
    cluster.unfence(3)
    assert cluster.state() == PartitionState((3,), (3,), 3, leader_epoch=2, epoch=2)


def test_whoever_leaves_too_small_an_in_sync_set_is_eligible_and_can_lead(cluster: CatalogRun) -> None:
    cluster.create(1, 2, 3, min_in_sync=2)
    cluster.fence(3)
    assert cluster.state().eligible == ()  # two are left, who may commit without it
    cluster.fence(2)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1,), (2,))
    cluster.fence(1)
    cluster.unfence(3)
    assert cluster.state().leader == NO_LEADER
    cluster.unfence(2)
    assert cluster.state() == PartitionState((1, 2, 3), (2,), 2, leader_epoch=2, epoch=4, eligible=(1,))


def test_the_eligible_are_so_until_enough_are_in_sync(cluster: CatalogRun) -> None:
    cluster.create(1, 2, 3, 4, min_in_sync=3)
    cluster.propose(1)
    assert cluster.state().eligible == (2, 3, 4)
    cluster.propose(1, 3)
    assert cluster.state().eligible == (2, 4)
    cluster.propose(1, 4, 3)
    assert (cluster.state().in_sync, cluster.state().eligible) == ((1, 3, 4), ())


def test_a_leader_whose_log_is_damaged_leaves_and_is_not_elected_for_what_it_had(cluster: CatalogRun) -> None:
    cluster.create(1, 2, min_in_sync=2)
    cluster.propose(2, is_damaged=True)
    assert (cluster.state().leader, cluster.state().in_sync, cluster.state().eligible) == (2, (2,), ())
    cluster.fence(2)
    assert cluster.state().leader == NO_LEADER


def test_fewer_needed_in_sync_takes_eligibility_from_those_who_may_miss_what_is_committed_now(
    cluster: CatalogRun,
) -> None:
    cluster.create(1, 2, min_in_sync=2)
    cluster.fence(2)
    assert cluster.state().eligible == (2,)
    events = cluster.run(AlterTopic("t", {"min.insync.replicas": "1"}))
    assert len(events) == 2
    assert cluster.state().eligible == ()


def test_altering_what_does_not_concern_replicas_changes_no_partition(cluster: CatalogRun) -> None:
    cluster.create(1, 2)
    assert len(cluster.run(AlterTopic("t", {"retention.ms": "60"}))) == 1


def test_an_unclean_election_takes_any_replica_that_is_alive(cluster: CatalogRun) -> None:
    cluster.create(1, 2, 3, min_in_sync=2)
    cluster.propose(1, 2)
    cluster.fence(2, 1)
    assert cluster.run(ElectLeaders(None, "preferred")) == []
    assert cluster.run(ElectLeaders([("t", 0)], "unclean")) != []
    assert cluster.state() == PartitionState((1, 2, 3), (3,), 3, leader_epoch=2, epoch=4, unclean_epoch=2)


def test_an_unclean_election_takes_one_that_has_yet_to_get_a_partition_only_if_no_other_is_there(
    cluster: CatalogRun,
) -> None:
    cluster.create(1, 2)
    cluster.propose(1)
    cluster.run(ReassignPartitions([("t", 0, [3, 4])]))
    cluster.fence(1)
    cluster.run(ElectLeaders([("t", 0)], "unclean"))
    assert (cluster.state().leader, cluster.state().adding) == (2, (3, 4))
    cluster.fence(2)
    cluster.run(ElectLeaders([("t", 0)], "unclean"))
    assert cluster.state().leader == 3


def test_it_is_known_later_that_an_election_was_unclean(cluster: CatalogRun) -> None:
    cluster.create(1, 2, 3, min_in_sync=2)
    cluster.propose(1, 2)
    cluster.fence(2, 1)
    cluster.run(AlterTopic("t", {"unclean.leader.election.enable": "true"}))
    assert (cluster.state().leader, cluster.state().unclean_epoch) == (3, 2)
    cluster.unfence(1)
    cluster.propose(3, 1)
    cluster.fence(3)
    assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().unclean_epoch) == (1, 3, 2)


def test_an_unclean_election_is_not_for_partitions_that_have_a_leader(cluster: CatalogRun) -> None:
    cluster.create(1, 2)
    assert cluster.run(ElectLeaders(None, "unclean")) == []
    assert cluster.run(ElectLeaders([("t", 0)], "unclean")) == []


def test_an_unclean_election_needs_somebody_alive(cluster: CatalogRun) -> None:
    cluster.create(1, 2)
    cluster.fence(1, 2)
    assert cluster.run(ElectLeaders(None, "unclean")) == []


def test_a_topic_that_allows_it_elects_uncleanly_by_itself() -> None:
    state = PartitionState((1, 2), (1,), 1, 0, 0)
    states = {1: NodeState.FENCED, 2: NodeState.ALIVE}
    assert settle(state, states, ElectionRules()).leader == NO_LEADER
    elected = settle(state, states, ElectionRules(allows_unclean=True))
    assert (elected.leader, elected.in_sync) == (2, (2,))


def test_the_preferred_replica_leads_again_when_it_is_asked_for_and_in_sync(cluster: CatalogRun) -> None:
    cluster.create(3, 1)
    cluster.fence(3)
    cluster.unfence(3)
    assert cluster.run(ElectLeaders()) == []
    cluster.propose(1, 3)
    assert cluster.state().leader == 1
    cluster.run(ElectLeaders([("t", 0)]))
    assert cluster.state() == PartitionState((3, 1), (3, 1), 3, leader_epoch=2, epoch=3)


def test_electing_what_does_not_exist_is_refused(cluster: CatalogRun) -> None:
    cluster.create(1)
    with pytest.raises(TopicNotFound):
        cluster.run(ElectLeaders([("x", 0)]))
    with pytest.raises(PartitionNotFound):
        cluster.run(ElectLeaders([("t", 1)]))


def test_a_leader_whose_log_knows_newer_epochs_gets_a_newer_one(cluster: CatalogRun) -> None:
    cluster.create(1, 2)
    cluster.run(BumpLeaderEpoch("t", 0, 41))
    assert cluster.state() == PartitionState((1, 2), (1, 2), 1, leader_epoch=42, epoch=1)
    assert cluster.run(BumpLeaderEpoch("t", 0, 41)) == []
    cluster.fence(1)
    assert cluster.state().leader_epoch == 43


# ---------------------------------------------------------------- in-sync sets


def test_a_leader_takes_members_in_and_out(cluster: CatalogRun) -> None:
    cluster.create(1, 2, 3)
    cluster.propose(1)
    assert cluster.state() == PartitionState((1, 2, 3), (1,), 1, leader_epoch=0, epoch=1)
    cluster.propose(3, 1)
    assert cluster.state() == PartitionState((1, 2, 3), (1, 3), 1, leader_epoch=0, epoch=2)


@pytest.mark.parametrize("members", [[1, 2], [1, 2, 4], [1, 2, 5]])
def test_a_proposal_that_comes_to_nothing_leaves_earlier_ones_stale_that_are_under_way(
    cluster: CatalogRun, members: list[int]
) -> None:
    """The leader has heard nothing of one that lets 3 in, which has fallen silent since. It is told that nobody was let in, and
    commits without 3; what arrives after that must not let it in. 4 is fenced, 5 is no replica."""
    cluster.create(1, 2, 3, 4)
    cluster.fence(4)
    cluster.propose(1, 2)
    before = cluster.state()
    late = InSyncProposal("t", 0, before.leader_epoch, before.epoch, [1, 2, 3])
    assert cluster.propose(*members) != []
    assert cluster.state() == structs.replace(before, epoch=before.epoch + 1)
    assert cluster.run(AlterPartitions(1, cluster.incarnation(1), [late])) == []
    assert cluster.replayed().snapshot() == cluster.catalog.snapshot()


def test_a_leader_that_leaves_itself_out_is_followed_by_another(cluster: CatalogRun) -> None:
    """Its disk has failed."""
    cluster.create(1, 2, 3)
    cluster.propose(2, 3)
    assert cluster.state() == PartitionState((1, 2, 3), (2, 3), 2, leader_epoch=1, epoch=1)


@pytest.mark.parametrize(
    "proposal",
    [
        InSyncProposal("x", 0, 0, 0, [1]),
        InSyncProposal("t", 1, 0, 0, [1]),
        InSyncProposal("t", -1, 0, 0, [1]),
        InSyncProposal("t", 0, 1, 1, [1]),
        InSyncProposal("t", 0, 0, 0, [1]),
        InSyncProposal("t", 0, 0, 2, [1]),
        InSyncProposal("led-by-2", 0, 0, 0, [2]),
    ],
)
def test_a_stale_proposal_is_dropped_and_the_others_count(
    cluster: CatalogRun, proposal: InSyncProposal
) -> None:
    cluster.create(1, 2, 3)
    cluster.create(2, 1, name="led-by-2")
    cluster.create(1, 2, name="good")
    cluster.fence(3)
    assert (cluster.state().leader_epoch, cluster.state().epoch) == (0, 1)
    good = InSyncProposal("good", 0, 0, 0, [1])
    (event,) = cluster.run(AlterPartitions(1, cluster.incarnation(1), [proposal, good, good]))
    assert isinstance(event, PartitionsChanged)
    assert [change.topic for change in event.changes] == ["good"]


@pytest.mark.parametrize("members", [[1, 4], [1, 3], [], [1, 1]])  # 4 is no replica, 3 is fenced
def test_a_wrong_proposal_changes_nobody_and_the_others_count(
    cluster: CatalogRun, members: list[int]
) -> None:
    cluster.create(1, 2, 3)
    cluster.create(1, 2, name="good")
    cluster.fence(3)
    before = cluster.state()
    wrong = InSyncProposal("t", 0, before.leader_epoch, before.epoch, members)
    good = InSyncProposal("good", 0, 0, 0, [1])
    cluster.run(AlterPartitions(1, cluster.incarnation(1), [wrong, good]))
    assert cluster.state() == structs.replace(before, epoch=before.epoch + 1)
    assert cluster.state("good").in_sync == (1,)


def test_proposals_of_an_older_incarnation_or_of_a_fenced_node_are_dropped(cluster: CatalogRun) -> None:
    cluster.create(1, 2)
    good = [InSyncProposal("t", 0, 0, 0, [1])]
    assert cluster.run(AlterPartitions(1, "n1/0", good)) == []
    assert cluster.run(AlterPartitions(9, "n1/0", good)) == []
    incarnation = cluster.incarnation(1)
    cluster.fence(1)
    assert cluster.run(AlterPartitions(1, incarnation, good)) == []


def test_a_new_partition_state_has_every_replica_in_sync() -> None:
    assert new_partition([2, 3]) == PartitionState((2, 3), (2, 3), 2, 0, 0)
