"""A cluster on this machine: one process per node, watched over by this one.

A node that dies is started again: at once where it had served for a while, and after a pause that doubles each time where it dies
soon after it was ready, so that one which cannot live does not keep the machine busy. When this process is told to stop, the nodes stop one after another, so that each hands over what
it leads to those that are left, as long as these are a majority. Each node holds the other end of a pipe to this process: whatever ends it, kill -9 too, ends them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from goqueue.cli.local_plan import LocalNode

logger = logging.getLogger(__name__)
_LINE_BYTES_MAX = 1024 * 1024
_STOP_S_MAX = 60.0  # for one node to hand over and to finish requests; then it is killed
_PAUSE_S_MIN = 0.2
_PAUSE_S_MAX = 30.0
# Who has served for so long has not died of its start. It is short, since somebody who tries what a cluster takes kills nodes every few
# seconds, and wants to see them come back and not a pause that grows.
_WELL_S = 5.0
_READY = "ready "
_INPUT = 0  # the descriptor of standard input
_INPUT_BYTES = 4_096


class NodeFailed(Exception):
    """A node cannot run; the sentence says which."""


class Started(NamedTuple):
    """How one node is started."""

    node: LocalNode
    command: Sequence[str]


class Pause:
    """How long a node that has ended stays down."""

    def __init__(self) -> None:
        self._next_s = _PAUSE_S_MIN

    def after(self, served_s: float) -> float:
        """It had been ready for so long."""
        now_s = _PAUSE_S_MIN if served_s >= _WELL_S else self._next_s
        self._next_s = min(2 * now_s, _PAUSE_S_MAX)
        return now_s


class LocalCluster:
    """`on_ready` is told of each node that is ready, with the line it wrote; `on_all_ready` once, when all are."""

    def __init__(
        self,
        starts: Sequence[Started],
        environment: Mapping[str, str],
        *,
        restarts: bool,
        on_ready: Callable[[str, str], None],
        on_all_ready: Callable[[], None],
    ) -> None:
        self._starts = starts
        self._environment = environment
        self._restarts = restarts
        self._on_ready = on_ready
        self._on_all_ready = on_all_ready
        self._processes: dict[str, Process] = {}
        self._ready_s: dict[str, float] = {}  # when those that have been ready were so last
        self._is_stopping = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises NodeFailed if a node does not start, or if all of them are gone."""
        tasks = [asyncio.ensure_future(self._keep(one)) for one in self._starts]
        keepers = asyncio.gather(*tasks)  # done as soon as one has failed
        stopped = asyncio.ensure_future(stop.wait())
        ends: list[asyncio.Future[Any]] = [keepers, stopped]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if keepers.done():
                keepers.result()
                raise NodeFailed("all nodes have ended")
        finally:
            stopped.cancel()
            await self._stop()
            await asyncio.gather(*tasks, return_exceptions=True)

    def kill(self) -> None:
        """At once, as after a crash, which the logs survive."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()

    async def _stop(self) -> None:
        """The last first, each with the time to hand over; as soon as no majority is left, there is nobody to hand over to, and
        the others end together."""
        self._is_stopping.set()
        left = [start.node.name for start in self._starts if self._is_alive(start.node.name)]
        while len(left) > len(self._starts) // 2:
            await self._end(left.pop(), hands_over=True)
        await asyncio.gather(*(self._end(name, hands_over=False) for name in left))

    def _is_alive(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.returncode is None

    async def _end(self, name: str, *, hands_over: bool) -> None:
        """Who does not end in time is killed."""
        process = self._processes[name]
        if hands_over or process.stdin is None or name not in self._ready_s:
            _terminate(process)
        else:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            logger.error("node does not stop and is killed name=%s", name)
            process.kill()
            await process.wait()

    async def _keep(self, start: Started) -> None:
        name, pause = start.node.name, Pause()
        loop = asyncio.get_running_loop()
        while not self._is_stopping.is_set():
            began_s = loop.time()
            code = await self._live(start)
            if self._is_stopping.is_set():
                return
            if name not in self._ready_s:
                raise NodeFailed(
                    f"{name} cannot start: it ended with {_describe(code)}; its last lines say why"
                )
            if not self._restarts:
                logger.error("node has ended name=%s with=%r", name, _describe(code))
                return
            ready_s = self._ready_s[name]
            pause_s = pause.after(loop.time() - ready_s if ready_s >= began_s else 0.0)
            logger.error("node has ended name=%s with=%r restart_s=%.1f", name, _describe(code), pause_s)
            await self._rest(pause_s)

    async def _live(self, start: Started) -> int:
        """One life of a node: from its start to its exit code."""
        name = start.node.name
        process = await asyncio.create_subprocess_exec(
            *start.command,
            stdin=PIPE,  # nothing is ever written: its end is the end of this process
            stdout=PIPE,
            stderr=PIPE,
            env=self._environment,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C is for this process, which stops the nodes in order
        )
        self._processes[name] = process
        if self._is_stopping.is_set():
            _terminate(process)
        await asyncio.gather(
            self._forward(name, process.stdout, self._note), self._forward(name, process.stderr, _print)
        )
        return await process.wait()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_stopping.wait()
        except TimeoutError:
            pass

    async def _forward(
        self, name: str, stream: asyncio.StreamReader | None, take: Callable[[str, str], None]
    ) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # longer than any line of ours; it is left out
                continue
            if not line:
                return
            take(name, line.decode(errors="replace").rstrip("\n"))

    def _note(self, name: str, line: str) -> None:
        if not line.startswith(_READY):
            _print(name, line)
            return
        self._on_ready(name, line.removeprefix(_READY))
        was_complete = len(self._ready_s) == len(self._starts)
        self._ready_s[name] = asyncio.get_running_loop().time()
        if not was_complete and len(self._ready_s) == len(self._starts):
            self._on_all_ready()


def run_local_cluster(cluster_of: Callable[[], LocalCluster], *, until_input_ends: bool = False) -> None:
    """Until SIGTERM or Ctrl-C; a second one ends everything at once. With `until_input_ends` also when standard input ends. The
    cluster is made inside the loop that runs it."""
    asyncio.run(_run_with_signals(cluster_of, until_input_ends=until_input_ends))


async def _run_with_signals(cluster_of: Callable[[], LocalCluster], *, until_input_ends: bool) -> None:
    cluster, stop = cluster_of(), asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            cluster.kill()
            os._exit(128 + number)
        logger.info("stopping signal=%s", number.name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    if until_input_ends:
        loop.add_reader(_INPUT, _on_input, stop)
    await cluster.run(stop)


def _on_input(stop: asyncio.Event) -> None:
    if not os.read(_INPUT, _INPUT_BYTES):
        asyncio.get_running_loop().remove_reader(_INPUT)
        logger.info("stopping reason='standard input has ended'")
        stop.set()


def _terminate(process: Process) -> None:
    if process.returncode is None:
        process.terminate()


def _print(name: str, line: str) -> None:
    print(f"{name} | {line}", file=sys.stderr, flush=True)


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
