"""Virtual time: no waiting, no threads, and the same run from the same seed."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from random import Random

import pytest

from goqueue.sim.latency import INSTANT, Latency
from goqueue.sim.loop import Deadlock, SimLoop, run


def test_a_long_sleep_takes_virtual_time_only() -> None:
    async def main(loop: SimLoop) -> float:
        start_s = loop.time()
        await asyncio.sleep(1_000)
        return loop.time() - start_s

    start_s = time.monotonic()
    assert run(main, seed=1) == pytest.approx(1_000)
    assert time.monotonic() - start_s < 100


def test_sleepers_wake_in_order_of_their_time() -> None:
    async def main(loop: SimLoop) -> list[tuple[float, float]]:
        woken: list[tuple[float, float]] = []

        async def sleeper(delay: float) -> None:
            await asyncio.sleep(delay)
            woken.append((delay, loop.time()))

        async with asyncio.TaskGroup() as group:
            for delay in (3.0, 1.0, 86_400.0 * 3, 2.0):
                group.create_task(sleeper(delay))
        return woken

    assert run(main, seed=1) == [(delay, delay) for delay in (1.0, 2.0, 3.0, 86_400.0 * 3)]


def test_timeouts_fire_in_virtual_time() -> None:
    async def main(loop: SimLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return loop.time()

    assert run(main, seed=1) == pytest.approx(60)


def test_a_deadlock_is_an_error_that_says_who_waits() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main(_: SimLoop) -> None:
        await wait_for_nothing()

    with pytest.raises(Deadlock, match=r"sim-1 at .*locks\.py"):
        run(main, seed=1)


def test_leftover_tasks_are_cancelled_at_the_end() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("forever")

    async def main(_: SimLoop) -> asyncio.Task[None]:
        task = asyncio.create_task(forever())
        await asyncio.sleep(1)
        return task

    assert run(main, seed=1).cancelled()
    assert ended == ["forever"]


def test_a_task_that_refuses_to_end_is_an_error() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def main(loop: SimLoop) -> None:
        tasks.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0.5)

    tasks: list[asyncio.Task[None]] = []
    loop = SimLoop(Random(1))
    loop.run_until_complete(main(loop))
    with pytest.raises(Deadlock, match="refuse to end: sim-2"):
        loop.cancel_leftovers()
    loop.close()


def test_the_error_of_a_task_that_nobody_awaits_is_raised_at_the_end() -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main(_: SimLoop) -> None:
        tasks.append(asyncio.create_task(fail()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    with pytest.raises(ExceptionGroup) as raised:
        run(main, seed=1)
    assert [str(error) for error in raised.value.exceptions] == ["nobody looks"]


def test_the_error_of_a_callback_is_exposed() -> None:
    async def main(loop: SimLoop) -> list[str]:
        loop.call_soon(functools.partial(int, "x"))
        await asyncio.sleep(1)
        errors = [type(item.error).__name__ for item in loop.unhandled]
        loop.unhandled.clear()
        return errors

    assert run(main, seed=1) == ["ValueError"]


def test_an_error_that_somebody_awaits_is_handled() -> None:
    async def fail() -> None:
        raise ValueError

    async def main(loop: SimLoop) -> int:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        with pytest.raises(ValueError):
            await task
        return len(loop.unhandled)

    assert run(main, seed=1) == 0


def test_executor_jobs_deliver_results_and_errors_after_a_delay() -> None:
    async def main(loop: SimLoop) -> float:
        assert await asyncio.to_thread(int, "5") == 5
        with pytest.raises(ValueError):
            await loop.run_in_executor(None, int, "x")
        return loop.time()

    assert 0.000_4 < run(main, seed=1) < 1.0


def test_executor_jobs_may_finish_out_of_order() -> None:
    async def main(loop: SimLoop) -> list[int]:
        finished: list[int] = []
        await asyncio.gather(*(asyncio.to_thread(finished.append, number) for number in range(20)))
        return finished

    finished = run(main, seed=1)
    assert sorted(finished) == list(range(20))
    assert finished != list(range(20))


def test_a_cancelled_job_may_run_all_the_same() -> None:
    async def main(loop: SimLoop) -> int:
        done: list[int] = []
        for number in range(100):
            loop.run_in_executor(None, done.append, number).cancel()
        await asyncio.sleep(1)
        return len(done)

    assert 20 < run(main, seed=1) < 80


def test_a_stalled_job_is_late_but_stalled_loop_code_delays_everybody() -> None:
    async def main(loop: SimLoop) -> tuple[float, float]:
        loop.executor_latency = INSTANT
        job = loop.run_in_executor(None, loop.stall, 5.0)
        await asyncio.sleep(1)
        others_s = loop.time()
        await job
        job_s = loop.time()
        assert (others_s, job_s) == (1.0, 5.0)
        loop.stall(10.0)
        await asyncio.sleep(0)
        return job_s, loop.time()

    assert run(main, seed=1) == (5.0, 15.0)


def test_latency_has_a_usual_range_and_a_tail() -> None:
    rng = Random(1)
    drawn = sorted(Latency().draw(rng) for _ in range(10_000))
    assert drawn[0] >= 0.000_1
    assert drawn[9_500] <= 0.002
    assert 0.1 < drawn[-1] <= 0.2


def busy_program(seed: int) -> list[str]:
    """A transcript that depends on every source of order: timers, jobs, sets of tasks, cancellation."""

    async def main(loop: SimLoop) -> list[str]:
        rng = Random(seed)
        transcript: list[str] = []

        def note(text: str) -> None:
            transcript.append(f"{loop.time():.9f} {text}")

        async def worker(number: int) -> None:
            try:
                for _ in range(rng.randint(1, 5)):
                    await asyncio.sleep(rng.choice([0.0, 0.001, rng.random()]))
                    await asyncio.to_thread(note, f"job of {number}")
                note(f"end of {number}")
                if number == 17:
                    raise ValueError
            except asyncio.CancelledError:
                note(f"cancelled {number}")
                raise

        async def work_together() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(30):
                    group.create_task(worker(number))

        with pytest.raises(ExceptionGroup):
            await work_together()
        pending = {asyncio.create_task(worker(number)) for number in range(8)}
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                note(task.get_name())
        return transcript

    return run(main, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_transcript(seed: int) -> None:
    first = busy_program(seed)
    garbage: list[Callable[[], None]] = [lambda: None for _ in range(1_000 * seed + 7)]  # moves addresses
    assert busy_program(seed) == first
    assert any("cancelled" in line for line in first)
    assert busy_program(seed + 1) != first
    del garbage
