"""A process that stands still (SIGSTOP): nothing of it runs, time goes on, and afterwards it goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from random import Random

from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process


def new_process(loop: SimLoop, host: str) -> Process:
    return Process(loop, host, SimDisk(Random(1)))


async def tick(seen: list[float]) -> None:
    while True:
        await asyncio.sleep(1.0)
        seen.append(asyncio.get_running_loop().time())


def test_paused_process_does_nothing_and_then_sees_that_it_is_later() -> None:
    async def main(loop: SimLoop) -> list[float]:
        process, seen = new_process(loop, "a"), list[float]()
        process.spawn(tick(seen))
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(10.0)
        assert len(seen) == 2
        process.resume()
        await asyncio.sleep(1.6)
        await process.crash(power_cut=False)
        return seen

    assert run(main, seed=1) == [1.0, 2.0, 12.5, 13.5]


def test_others_go_on_while_one_is_paused() -> None:
    async def main(loop: SimLoop) -> int:
        paused, other, seen = new_process(loop, "a"), new_process(loop, "b"), list[float]()
        paused.spawn(tick([]))
        other.spawn(tick(seen))
        paused.pause()
        await asyncio.sleep(5.5)
        for process in (paused, other):
            await process.crash(power_cut=False)
        return len(seen)

    assert run(main, seed=1) == 5


def test_job_of_a_paused_process_waits_with_it() -> None:
    async def main(loop: SimLoop) -> list[float]:
        done: list[float] = []

        async def work() -> None:
            await asyncio.get_running_loop().run_in_executor(None, lambda: done.append(loop.time()))

        process = new_process(loop, "a")
        process.spawn(work())
        process.pause()
        await asyncio.sleep(3.0)
        assert not done
        process.resume()
        await asyncio.sleep(1.0)
        await process.crash(power_cut=False)
        return done

    (at_s,) = run(main, seed=1)
    assert at_s >= 3.0


def test_bytes_for_a_paused_process_wait_in_its_socket() -> None:
    async def main(loop: SimLoop) -> list[bytes]:
        got: list[bytes] = []

        async def serve() -> None:
            async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                got.append(await reader.readexactly(5))
                writer.close()

            await asyncio.start_server(take, "a", 80)

        process = new_process(loop, "a")
        await process.spawn(serve())
        process.pause()
        await asyncio.sleep(0.01)
        _, writer = await asyncio.open_connection("a", 80)
        writer.write(b"hello")
        await asyncio.sleep(5.0)
        assert not got
        process.resume()
        await asyncio.sleep(1.0)
        writer.close()
        await process.crash(power_cut=False)
        return got

    assert run(main, seed=1) == [b"hello"]


def test_paused_process_can_be_killed() -> None:
    async def main(loop: SimLoop) -> list[float]:
        process, seen = new_process(loop, "a"), list[float]()
        process.spawn(tick(seen))
        process.pause()
        await asyncio.sleep(5.0)
        await process.crash(power_cut=True)
        await asyncio.sleep(5.0)
        return seen

    assert run(main, seed=1) == []
