"""Voters come and go in a simulated cluster of whole nodes, by REST at any node."""

from __future__ import annotations

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.nodes import NodeState
from goqueue.node.cluster import quorum
from goqueue.node.cluster.ports import Done
from goqueue.node.cluster.service import Service


def voters(played: PlayedCluster, name: str) -> list[str]:
    return list(played.node(name)._quorum.raft.voters)


def controller(played: PlayedCluster) -> str:
    found = played.cluster.controller()
    assert found is not None
    return found.name


async def change(played: PlayedCluster, at: str, method: str, name: str) -> list[str]:
    path = "/cluster/voters" if method == "POST" else f"/cluster/voters/{name}"
    answer = await played.rest(at, method, path, {"node": name} if method == "POST" else None)
    assert answer.status == 200, answer
    found = answer.body["voters"]
    assert isinstance(found, list)
    return found


def test_voter_goes_and_comes_back_and_the_log_counts_after_restarts() -> None:
    async def play(played: PlayedCluster) -> None:
        names = played.cluster.names
        assert voters(played, "node-1") == names
        leads = controller(played)
        goes = next(name for name in names if name != leads)
        left = [name for name in names if name != goes]
        assert await change(played, goes, "DELETE", goes) == left
        await played.start_again()
        assert all(voters(played, name) == left for name in names)
        assert await change(played, goes, "POST", goes) == [*left, goes]
        await played.start_again()
        assert all(voters(played, name) == [*left, goes] for name in names)

    in_cluster(play, size=4)


def test_voters_survive_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "_SNAPSHOT_ENTRY_COUNT", 5)

    async def play(played: PlayedCluster) -> None:
        goes = next(name for name in played.cluster.names if name != controller(played))
        left = await change(played, controller(played), "DELETE", goes)
        for number in range(8):
            await played.create(f"topic-{number}")
        assert played.node(controller(played))._quorum._snapshot_index > 0
        await played.start_again()
        assert all(voters(played, name) == left for name in played.cluster.names)

    in_cluster(play, size=4)


def test_controller_that_is_removed_hands_over_first() -> None:
    async def play(played: PlayedCluster) -> None:
        leads = controller(played)
        other = next(name for name in played.cluster.names if name != leads)
        assert leads not in await change(played, other, "DELETE", leads)
        await played.until(lambda: not played.cluster.unsettled())
        assert controller(played) != leads
        await played.create("afterwards")
        assert leads in await change(played, leads, "POST", leads)

    in_cluster(play)


def test_refused_changes_say_why_and_change_nothing() -> None:
    async def play(played: PlayedCluster) -> None:
        leads = controller(played)
        dead, other = (name for name in played.cluster.names if name != leads)
        await played.cluster.hosts[dead].crash(power_cut=False)  # just now: it answered a moment ago
        before = voters(played, leads)
        for method, path, body, status, sentence in (
            ("POST", "/cluster/voters", {"node": "absent"}, 404, "there is no node 'absent'"),
            ("POST", "/cluster/voters", {"node": other}, 409, "votes already"),
            ("DELETE", "/cluster/voters/absent", None, 404, "there is no node 'absent'"),
            ("DELETE", f"/cluster/voters/{other}", None, 409, "only 1 would be alive, and 2 are needed"),
            ("DELETE", f"/cluster/nodes/{dead}", None, 409, "remove it from the voters first"),
        ):
            answer = await played.rest(other, method, path, body)
            assert answer.status == status, answer
            assert sentence in str(answer.body["error"])
        assert voters(played, leads) == before

    in_cluster(play)


def test_node_is_removed_at_another_than_the_controller_by_the_path_that_is_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []
    leave = Service.leave

    async def noted(service: Service, source: str, name: str) -> Done:
        asked.append((source, name))
        return await leave(service, source, name)

    monkeypatch.setattr(Service, "leave", noted)

    async def play(played: PlayedCluster) -> None:
        asked.clear()
        goes, at, *_ = (name for name in played.cluster.names if name != controller(played))
        await change(played, at, "DELETE", goes)
        await played.cluster.hosts[goes].crash(power_cut=False)

        def is_fenced() -> bool:
            node = played.node(at)._metadata.catalog.node(goes)
            return node is not None and node.state is NodeState.FENCED

        await played.until(is_fenced)
        answer = await played.rest(at, "DELETE", f"/cluster/nodes/{goes}", None)
        assert answer.status == 200, answer
        assert asked == [(at, goes)]
        left = [name for name in played.cluster.names if name != goes]
        await played.until(
            lambda: all(played.node(name)._metadata.catalog.node(goes) is None for name in left)
        )

    in_cluster(play, size=4)
