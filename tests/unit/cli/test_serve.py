"""A whole broker inside the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import structs

from goqueue.cli import serve
from goqueue.cli.config import Config
from goqueue.cli.listening import Listening
from goqueue.cli.serve import BrokerFailed, Stop, run_broker
from goqueue.client.rest import RestClient
from goqueue.core.cluster.nodes import Endpoints
from goqueue.node.folder import DataFolder
from goqueue.node.node import Node


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
