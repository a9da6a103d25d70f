"""The composition root: disk, clock, node and listeners, started in order and stopped in the reverse one."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from goqueue.api.cluster.listener import ClusterListener
from goqueue.api.http.app import RestApi
from goqueue.api.http.server import HttpServer
from goqueue.api.kafka.app import KafkaListener
from goqueue.cli.cluster_node import cluster_parts, refuse_namesake
from goqueue.cli.cluster_tls import TlsUnusable
from goqueue.cli.config import Config
from goqueue.cli.config_keys import Address, parse_address
from goqueue.cli.listening import Listening
from goqueue.core.cluster.nodes import Endpoints
from goqueue.log.os_disk import OsDisk
from goqueue.model.cluster_errors import NameTaken, WrongCluster
from goqueue.node.clock import SystemClock
from goqueue.node.folder import DataFolder
from goqueue.node.node import Node

logger = logging.getLogger(__name__)

_PEER_GRACE_S_MAX = 2.0  # what other nodes ask is asked again elsewhere; clients are the ones to wait for
_INPUT = 0  # the descriptor of standard input
_INPUT_BYTES = 4_096

OnReady = Callable[[Listening], None]


class Server(Protocol):
    async def start(self) -> tuple[str, int]: ...

    async def stop(self, grace_s: float) -> None: ...


class Servers(NamedTuple):
    http: HttpServer
    kafka: KafkaListener
    cluster: ClusterListener | None = None


class Stop:
    """That a broker shall end, and whether other nodes are left to take over what it leads."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hands_over = True


class BrokerFailed(Exception):
    """The broker cannot run, or not any longer; the sentence says why."""


async def run_broker(config: Config, *, on_ready: OnReady, stop: Stop | None = None) -> None:
    """A whole broker until it is asked to `stop` or the task is cancelled; `on_ready` gets the addresses it listens on."""
    folder = DataFolder.lock(config.data_dir)
    stop = stop or Stop()
    try:
        if config.node.is_solo:
            node = await _run_alone(config, on_ready, stop)
        else:
            node = await _run_in_cluster(config, on_ready, stop)
    finally:
        folder.release()
    if node.failed.is_set():
        # Without a checkpoint of a state that cannot be trusted: the next start reads the log again.
        if isinstance(node.failure, WrongCluster | NameTaken):
            raise BrokerFailed(node.failure.sentence)
        raise BrokerFailed("the broker stopped because of an internal error; its log says which")


async def _run_alone(config: Config, on_ready: OnReady, stop: Stop) -> Node:
    clock = SystemClock()
    node = Node(config.node, OsDisk(config.data_dir), clock)
    await node.start()
    try:
        servers = Servers(_http_server(config, RestApi(node, clock)), _kafka_listener(config, node))
        await _serve(config, node, servers, on_ready=on_ready, stop=stop)
    finally:
        if not node.failed.is_set():
            await node.stop()
    return node


async def _run_in_cluster(config: Config, on_ready: OnReady, stop: Stop) -> Node:
    """Listeners first: the others must be reached before there is a quorum, and must know where clients find this node."""
    clock = SystemClock()
    try:
        node, links, listener = cluster_parts(config, clock)
    except TlsUnusable as error:
        raise BrokerFailed(str(error)) from error
    try:
        await node.begin()
        servers = Servers(_http_server(config, RestApi(node, clock)), _kafka_listener(config, node), listener)
        meet = partial(refuse_namesake, node, links)
        await _serve(config, node, servers, on_ready=on_ready, stop=stop, meet=meet)
    except (WrongCluster, NameTaken) as error:
        raise BrokerFailed(error.sentence) from error
    finally:
        if not node.failed.is_set():
            await node.stop()
        await links.close()
    return node


def run_until_signal(config: Config, *, on_ready: OnReady, until_input_ends: bool = False) -> None:
    """`run_broker` as a process of its own: the fastest loop there is, and a clean end on SIGTERM and SIGINT. With `until_input_ends`
    also when standard input ends: it is a pipe from a process that this one must not outlive."""
    _raise_descriptor_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run_with_signals(config, on_ready, until_input_ends=until_input_ends))


async def _run_with_signals(config: Config, on_ready: OnReady, *, until_input_ends: bool) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop, number)
    if until_input_ends:
        loop.add_reader(_INPUT, _on_input, loop, stop)
    await run_broker(config, on_ready=on_ready, stop=stop)


def _on_input(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    """Whoever started this node is gone, and so are the others that it has started: there is nobody to take over."""
    if not os.read(_INPUT, _INPUT_BYTES):
        loop.remove_reader(_INPUT)
        logger.info("stopping reason='standard input has ended'")
        stop.hands_over = False
        stop.asked.set()


def _on_signal(stop: Stop, number: signal.Signals) -> None:
    if stop.asked.is_set():
        os._exit(128 + number)  # asked twice: at once, as after a crash, which the log survives
    logger.info("stopping signal=%s", number.name)
    stop.asked.set()


def _http_server(config: Config, app: RestApi) -> HttpServer:
    host, port = parse_address(config.http)
    limit = config.node.limits.connection_count_max
    return HttpServer(app, host=host, port=port, connection_count_max=limit)


def _kafka_listener(config: Config, node: Node) -> KafkaListener:
    host, port = parse_address(config.kafka)
    advertised = parse_address(config.kafka_advertised) if config.kafka_advertised else None
    return KafkaListener(node, host=host, port=port, advertised=advertised)


async def _serve(
    config: Config,
    node: Node,
    servers: Servers,
    *,
    on_ready: OnReady,
    stop: Stop,
    meet: Callable[[str], Awaitable[None]] | None = None,
) -> None:
    """Where there are others, `meet` is told where this node listens for them, before it joins them."""
    started: list[Server] = []
    try:
        http = await _started(servers.http, config.http, started)
        is_alone = servers.cluster is None
        kafka = await _started(
            servers.kafka, config.kafka, started, partial(servers.kafka.start, is_open=is_alone)
        )
        listening = Listening(http, kafka)
        if servers.cluster is not None:
            cluster = await _started(servers.cluster, config.cluster_listen, started)
            listening = Listening(http, kafka, cluster)
            await _first_of(stop.asked, node.failed, work=_joined(config, node, servers, listening, meet))
        logger.info("listening %s", listening)
        if not stop.asked.is_set() and not node.failed.is_set():
            on_ready(listening)
        await _first_of(stop.asked, node.failed)
        if not node.failed.is_set() and stop.hands_over:
            await node.leave()
    finally:
        await node.drain()
        grace_s = config.node.drain_timeout_ms / 1_000
        await asyncio.gather(
            *(
                server.stop(min(grace_s, _PEER_GRACE_S_MAX) if server is servers.cluster else grace_s)
                for server in started
            )
        )


async def _joined(
    config: Config,
    node: Node,
    servers: Servers,
    listening: Listening,
    meet: Callable[[str], Awaitable[None]] | None,
) -> None:
    if meet is not None:
        await meet(str(listening.cluster))
    await node.start(_endpoints(config, listening), servers.kafka.open)


def _endpoints(config: Config, listening: Listening) -> Endpoints:
    """Where others find this node: what it listens on, unless it is told to say something else."""
    return Endpoints(
        http=config.http_advertised or str(listening.http),
        kafka=config.kafka_advertised or str(listening.kafka),
        cluster=config.cluster_advertised or str(listening.cluster),
    )


async def _started(
    server: Server,
    asked: str,
    started: list[Server],
    start: Callable[[], Awaitable[tuple[str, int]]] | None = None,
) -> Address:
    try:
        address = Address(*await (start or server.start)())
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise BrokerFailed(f"cannot listen on {asked}: {reason}") from error
    started.append(server)
    return address


async def _first_of(*events: asyncio.Event, work: Coroutine[None, None, None] | None = None) -> None:
    """Until one of the events is set, or the work is done; what it raises goes through."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait()) for event in events]
    working = None if work is None else asyncio.ensure_future(work)
    if working is not None:
        waits.append(working)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if working is not None and working.done():
            working.result()
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
