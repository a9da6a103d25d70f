"""A whole broker inside the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import structs

from goqueue.cli import cluster_node, serve
from goqueue.cli.config import Config
from goqueue.cli.listening import Listening
from goqueue.cli.serve import BrokerFailed, Stop, run_broker
from goqueue.client.rest import RestClient
from goqueue.core.cluster.nodes import Endpoints
from goqueue.model.cluster_errors import WrongCluster
from goqueue.node.config import ClusterConfig, Peer
from goqueue.node.folder import DataFolder
from goqueue.node.node import Node
from goqueue.peer.links import PeerLinks


def config_in(folder: Path) -> Config:
    return structs.replace(Config(), data_dir=str(folder), http="127.0.0.1:0", kafka="127.0.0.1:0")


def is_free(folder: Path) -> bool:
    DataFolder.lock(str(folder)).release()
    return True


async def serve_one_request(config: Config) -> None:
    stop = Stop()
    ready: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(run_broker(config, on_ready=ready.set_result, stop=stop))
        with RestClient(f"http://{(await ready).http}") as client:
            assert await asyncio.to_thread(client.topics) == []
        stop.asked.set()


async def cancel_when_ready(config: Config) -> None:
    ready: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30):
        broker = asyncio.create_task(run_broker(config, on_ready=ready.set_result))
        await ready
        broker.cancel()
        await asyncio.wait([broker])
    assert broker.cancelled()


def test_a_broker_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    asyncio.run(serve_one_request(config_in(tmp_path)))
    assert is_free(tmp_path)


def test_a_cancelled_broker_stops_as_one_that_was_told_to(tmp_path: Path) -> None:
    asyncio.run(cancel_when_ready(config_in(tmp_path)))
    assert is_free(tmp_path)


class BrokenNode(Node):
    """Meets something that cannot happen as soon as it runs."""

    async def start(
        self, endpoints: Endpoints | None = None, open_doors: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        await super().start(endpoints, open_doors)
        self.failed.set()

    async def stop(self) -> None:
        raise AssertionError("a state that cannot be trusted must not be saved")


def test_a_broker_that_failed_ends_with_an_error_and_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "Node", BrokenNode)
    with pytest.raises(BrokerFailed, match="internal error"):
        asyncio.run(run_broker(config_in(tmp_path), on_ready=lambda address: None))
    assert is_free(tmp_path)


def test_a_node_that_waits_for_a_namesake_to_answer_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is found at its address may take connections and say nothing."""
    stop = Stop()

    async def never(node: Node, links: PeerLinks, listens: str) -> None:
        stop.asked.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.timeout(60):
            await run_broker(member_in(tmp_path), on_ready=lambda address: None, stop=stop)

    monkeypatch.setattr(serve, "refuse_namesake", never)
    asyncio.run(main())
    assert is_free(tmp_path)


class MemberOfAnother(Node):
    """Learns only when it runs which cluster the others belong to."""

    async def start(
        self, endpoints: Endpoints | None = None, open_doors: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.fail(WrongCluster("ours", "theirs"))


def test_a_node_that_learns_late_of_another_cluster_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_node, "Node", MemberOfAnother)
    with pytest.raises(BrokerFailed, match="belongs to cluster 'ours', not to 'theirs'"):
        asyncio.run(run_broker(member_in(tmp_path), on_ready=lambda address: None))
    assert is_free(tmp_path)


def member_in(folder: Path) -> Config:
    """One of three, of which the others are not there."""
    peers = tuple(Peer(f"node-{number}", "127.0.0.1", 1) for number in (1, 2, 3))
    config = config_in(folder)
    return structs.replace(
        config,
        cluster_listen="127.0.0.1:0",
        cluster_secret="what all nodes of a test know",
        node=structs.replace(config.node, node_id="node-1", cluster=ClusterConfig(peers=peers)),
    )
