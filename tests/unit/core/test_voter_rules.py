"""Which changes of the voters are allowed, and what is said of those that are not."""

from __future__ import annotations

import pytest

from goqueue.core.cluster.voter_rules import Electorate, check_all_joined, with_added, with_removed
from goqueue.core.raft.states import Standing
from goqueue.model.cluster_errors import NodeNotFound, VotersRefused
from goqueue.model.errors import NotEnoughReplicas

WELL = Standing(silent_ms=5, lacking_count=1, is_recovering=False)
SILENT = Standing(silent_ms=5_000, lacking_count=1, is_recovering=False)
UNHEARD = Standing(silent_ms=None, lacking_count=1, is_recovering=False)
BEHIND = Standing(silent_ms=5, lacking_count=50_000, is_recovering=False)
LOST = Standing(silent_ms=5, lacking_count=0, is_recovering=True)
NODES = [f"n{number}" for number in range(1, 8)]


def electorate(*voters: str, **others: Standing) -> Electorate:
    """n1 is the controller, all are well unless told otherwise."""
    standings = dict.fromkeys(NODES[1:], WELL) | others
    return Electorate("n1", voters, standings, silent_ms_max=1_000)


def test_one_that_is_well_becomes_a_voter_up_to_five() -> None:
    assert with_added(electorate("n1", "n2", "n3"), "n4", NODES) == ("n1", "n2", "n3", "n4")
    assert with_added(electorate("n1"), "n2", NODES) == ("n1", "n2")
    with pytest.raises(VotersRefused, match="no more than 5"):
        with_added(electorate("n1", "n2", "n3", "n4", "n5"), "n6", NODES)


@pytest.mark.parametrize(
    ("name", "standing", "sentence"),
    [
        ("n2", WELL, "'n2' votes already"),
        ("n4", SILENT, "'n4' is not heard of"),
        ("n4", UNHEARD, "'n4' is not heard of"),
        ("n4", LOST, "'n4' has not caught up: it has just begun"),
        ("n4", BEHIND, "'n4' has not caught up: it lacks 50000 entries"),
    ],
)
def test_one_that_is_not_well_or_votes_already_is_refused(
    name: str, standing: Standing, sentence: str
) -> None:
    with pytest.raises(VotersRefused, match=sentence):
        with_added(electorate("n1", "n2", "n3", **{name: standing}), name, NODES)


def test_who_is_not_in_the_cluster_can_neither_be_added_nor_removed() -> None:
    with pytest.raises(NodeNotFound, match="'n9'"):
        with_added(electorate("n1", "n2", "n3"), "n9", NODES)
    with pytest.raises(NodeNotFound, match="'n9'"):
        with_removed(electorate("n1", "n2", "n3"), "n9", NODES)
    with pytest.raises(VotersRefused, match="'n4' does not vote"):
        with_removed(electorate("n1", "n2", "n3"), "n4", NODES)


def test_voter_that_never_registered_can_be_removed() -> None:
    assert with_removed(electorate("n1", "n2", "n9"), "n9", NODES) == ("n1", "n2")


def test_dead_voter_is_removed_and_the_controller_itself_too() -> None:
    assert with_removed(electorate("n1", "n2", "n3", n3=SILENT), "n3", NODES) == ("n1", "n2")
    assert with_removed(electorate("n1", "n2", "n3"), "n1", NODES) == ("n2", "n3")


def test_change_after_which_no_majority_would_be_alive_is_refused() -> None:
    with pytest.raises(VotersRefused, match=r"only 1 would be alive, and 2 are needed .* bring n3 back"):
        with_removed(electorate("n1", "n2", "n3", n3=SILENT), "n2", NODES)
    with pytest.raises(VotersRefused, match="only 2 would be alive, and 3 are needed"):
        with_removed(electorate("n1", "n2", "n3", "n4", "n5", n4=SILENT, n5=LOST), "n2", NODES)
    with pytest.raises(VotersRefused, match="the only voter"):
        with_removed(electorate("n1"), "n1", NODES)


def test_new_controller_counts_nobody_before_it_has_heard_of_them() -> None:
    with pytest.raises(VotersRefused, match="only 1 would be alive"):
        with_removed(electorate("n1", "n2", "n3", n3=UNHEARD), "n2", NODES)


def test_lost_voter_is_replaced_before_it_is_removed() -> None:
    added = with_added(electorate("n1", "n2", "n3", n3=SILENT), "n4", NODES)
    assert with_removed(electorate(*added, n3=SILENT), "n3", NODES) == ("n1", "n2", "n4")


@pytest.mark.parametrize(("voter_count", "joined_count"), [(1, 0), (3, 2), (3, 0), (5, 2)])
def test_topics_wait_until_there_are_nodes_for_the_usual_replicas(
    voter_count: int, joined_count: int
) -> None:
    with pytest.raises(
        NotEnoughReplicas,
        match=f"only {joined_count} of the voters .* have ever joined; start n{joined_count + 1}",
    ):
        check_all_joined(NODES[:voter_count], NODES[:joined_count])


@pytest.mark.parametrize(("voter_count", "joined_count"), [(1, 1), (2, 2), (3, 3), (5, 3), (1, 7)])
def test_topics_wait_for_no_more_nodes_than_that(voter_count: int, joined_count: int) -> None:
    check_all_joined(NODES[:voter_count], NODES[:joined_count])
