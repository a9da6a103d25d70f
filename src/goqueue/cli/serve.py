"""The composition root: disk, clock, node and listeners, started in order and stopped in the reverse one."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable
from typing import NamedTuple, Protocol

from goqueue.api.http.app import RestApi
from goqueue.api.http.server import HttpServer
from goqueue.api.kafka.app import KafkaListener
from goqueue.cli.config import Config
from goqueue.cli.config_keys import Address, parse_address
from goqueue.cli.listening import Listening
from goqueue.log.os_disk import OsDisk
from goqueue.node.clock import SystemClock
from goqueue.node.folder import DataFolder
from goqueue.node.node import Node

logger = logging.getLogger(__name__)

OnReady = Callable[[Listening], None]


class Server(Protocol):
    async def start(self) -> tuple[str, int]: ...

    async def stop(self, grace_s: float) -> None: ...


class Servers(NamedTuple):
    http: HttpServer
    kafka: KafkaListener


class BrokerFailed(Exception):
    """The broker cannot run, or not any longer; the sentence says why."""


async def run_broker(config: Config, *, on_ready: OnReady, stop: asyncio.Event | None = None) -> None:
    """A whole broker until `stop` is set or the task is cancelled; `on_ready` gets the addresses it listens on."""
    folder = DataFolder.lock(config.data_dir)
    try:
        clock = SystemClock()
        node = Node(config.node, OsDisk(config.data_dir), clock)
        await node.start()
        try:
            servers = Servers(_http_server(config, RestApi(node, clock)), _kafka_listener(config, node))
            await _serve(config, node, servers, on_ready=on_ready, stop=stop or asyncio.Event())
        finally:
            if not node.failed.is_set():
                await node.stop()
    finally:
        folder.release()
    if node.failed.is_set():
        # Without a checkpoint of a state that cannot be trusted: the next start reads the log again.
        raise BrokerFailed("the broker stopped because of an internal error; its log says which")


def run_until_signal(config: Config, *, on_ready: OnReady) -> None:
    """`run_broker` as a process of its own: the fastest loop there is, and a clean end on SIGTERM and SIGINT."""
    _raise_descriptor_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run_with_signals(config, on_ready))


async def _run_with_signals(config: Config, on_ready: OnReady) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop, number)
    await run_broker(config, on_ready=on_ready, stop=stop)


def _on_signal(stop: asyncio.Event, number: signal.Signals) -> None:
    if stop.is_set():
        os._exit(128 + number)  # asked twice: at once, as after a crash, which the log survives
    logger.info("stopping signal=%s", number.name)
    stop.set()


def _http_server(config: Config, app: RestApi) -> HttpServer:
    host, port = parse_address(config.http)
    limit = config.node.limits.connection_count_max
    return HttpServer(app, host=host, port=port, connection_count_max=limit)


def _kafka_listener(config: Config, node: Node) -> KafkaListener:
    host, port = parse_address(config.kafka)
    advertised = parse_address(config.kafka_advertised) if config.kafka_advertised else None
    return KafkaListener(node, host=host, port=port, advertised=advertised)


async def _serve(
    config: Config, node: Node, servers: Servers, *, on_ready: OnReady, stop: asyncio.Event
) -> None:
    started: list[Server] = []
    try:
        http = await _started(servers.http, config.http, started)
        kafka = await _started(servers.kafka, config.kafka, started)
        logger.info("listening http=%s kafka=%s", http, kafka)
        on_ready(Listening(http, kafka))
        await _first_of(stop, node.failed)
    finally:
        await node.drain()
        await asyncio.gather(*(server.stop(config.node.drain_timeout_ms / 1_000) for server in started))


async def _started(server: Server, asked: str, started: list[Server]) -> Address:
    try:
        address = Address(*await server.start())
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise BrokerFailed(f"cannot listen on {asked}: {reason}") from error
    started.append(server)
    return address


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _raise_descriptor_limit() -> None:
    """Every partition keeps files open and every client a socket; the default of 1,024 is for shells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
