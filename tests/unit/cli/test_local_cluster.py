"""The process that watches over the nodes of a cluster on this machine. The nodes are small scripts: they say that they are ready,
and end when they are told to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from goqueue.cli.addresses import Address
from goqueue.cli.local_cluster import LocalCluster, NodeFailed, Pause, Started
from goqueue.cli.local_plan import LocalNode

WELL = """
import os, signal, sys
def tell(why):
    with open(sys.argv[1], "a") as file:
        print(sys.argv[2], why, file=file, flush=True)
def end(*args):
    tell("told")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
tell(f"pid {os.getpid()}")
print("a word on the way", file=sys.stderr, flush=True)
print(f"ready pid={os.getpid()}", flush=True)
sys.stdin.read()
tell("input ended")
"""
SICK = "import sys; print('I cannot', file=sys.stderr); sys.exit(3)"
NOWHERE = Address("127.0.0.1", 1)


class Watched:
    """A cluster of scripts, and what was heard of it."""

    def __init__(self, folder: Path, *scripts: str, restarts: bool = True) -> None:
        self.diary = folder / "diary"
        self.diary.touch()
        self.pids: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.all_ready_count = 0
        self.stop = asyncio.Event()
        names = [f"node-{at + 1}" for at in range(len(scripts))]
        self.cluster = LocalCluster(
            [
                Started(
                    LocalNode(name, NOWHERE, NOWHERE, NOWHERE),
                    [sys.executable, "-c", script, str(self.diary), name],
                )
                for name, script in zip(names, scripts, strict=True)
            ],
            os.environ,
            restarts=restarts,
            on_ready=self._note,
            on_all_ready=self._note_all,
        )

    def _note(self, name: str, line: str) -> None:
        self.pids.put_nowait((name, int(line.removeprefix("pid="))))

    def _note_all(self) -> None:
        self.all_ready_count += 1

    async def ready(self, count: int) -> dict[str, int]:
        return dict([await self.pids.get() for _ in range(count)])

    def endings(self) -> list[str]:
        return [line for line in self.diary.read_text().splitlines() if " pid " not in line]


Story = Callable[[Watched], Coroutine[None, None, None]]


def watch(story: Story, folder: Path, *scripts: str) -> Watched:
    async def main() -> Watched:
        watched = Watched(folder, *scripts)
        async with asyncio.timeout(60):
            run = asyncio.create_task(watched.cluster.run(watched.stop))
            try:
                await story(watched)
            finally:
                watched.stop.set()
                await run
        return watched

    return asyncio.run(main())


def test_nodes_end_in_order_and_the_last_ones_when_no_majority_is_left(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await watched.ready(3)

    watched = watch(story, tmp_path, WELL, WELL, WELL)
    assert watched.endings() == ["node-3 told", "node-2 told", "node-1 input ended"]
    assert watched.all_ready_count == 1


def test_a_node_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        pids = await watched.ready(2)
        os.kill(pids["node-2"], signal.SIGKILL)
        again = await watched.ready(1)
        assert again["node-2"] != pids["node-2"]

    assert watch(story, tmp_path, WELL, WELL).all_ready_count == 1


def test_a_node_that_dies_as_soon_as_it_is_ready_stays_down_longer_each_time() -> None:
    pause = Pause()
    pauses = [pause.after(served_s=0.0) for _ in range(10)]
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert pauses[-1] == 30.0


def test_a_node_that_has_served_for_a_while_comes_back_soon_however_often_it_is_killed() -> None:
    pause = Pause()
    assert {pause.after(served_s=8.0) for _ in range(60)} == {0.2}
    assert [pause.after(served_s=0.0), pause.after(served_s=0.0)] == [0.4, 0.8]
    assert pause.after(served_s=8.0) == 0.2


def test_without_restarts_the_others_go_on_until_none_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        watched = Watched(tmp_path, WELL, WELL, restarts=False)
        async with asyncio.timeout(60):
            run = asyncio.create_task(watched.cluster.run(watched.stop))
            for pid in (await watched.ready(2)).values():
                os.kill(pid, signal.SIGKILL)
            await run

    with pytest.raises(NodeFailed, match="all nodes have ended"):
        asyncio.run(main())


def test_a_node_that_cannot_start_ends_all_of_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        watched = Watched(tmp_path, WELL, SICK)
        async with asyncio.timeout(60):
            await watched.cluster.run(watched.stop)

    with pytest.raises(NodeFailed, match="node-2 cannot start: it ended with exit code 3"):
        asyncio.run(main())
    assert "node-2 | I cannot" in capfd.readouterr().err


def test_what_nodes_write_is_told_with_their_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def story(watched: Watched) -> None:
        await watched.ready(1)

    watch(story, tmp_path, WELL)
    assert "node-1 | a word on the way" in capfd.readouterr().err
