"""An asyncio event loop in virtual time: the same seed gives the same run, and waiting costs nothing.

The loop never sleeps. When nothing is ready its clock jumps to the next timer; when there is no timer
either, nothing can ever happen again and it raises `Deadlock` rather than hang. Threads do not exist:
`run_in_executor` runs the function on the loop after a random delay and delivers the result after another,
so jobs overtake each other and may be done before anybody hears of it, as with real threads.

Asyncio keeps tasks in sets (`TaskGroup`, `asyncio.wait`), whose order follows the hash, by default an
address in memory that differs from run to run. Tasks and futures of this loop hash to their serial number.
What stays outside its reach: the global `random`, the wall clock, the order of sets of strings (set
PYTHONHASHSEED) and the moment at which the garbage collector finds a cycle.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from goqueue.sim.latency import Latency
from goqueue.sim.life import Life, current_life
from goqueue.sim.net import Network, SimServer, SimTransport

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)
Ts = TypeVarTuple("Ts")

_CANCEL_ROUNDS_MAX = 1_000  # a task that outlives so many cancellations swallows them in a loop
_EXECUTOR_LATENCY = Latency()


class Deadlock(RuntimeError):
    """Everybody waits and nobody will ever wake them."""


class Unhandled(NamedTuple):
    message: str
    error: BaseException | None


class SimLoop(asyncio.BaseEventLoop):
    """`unhandled` holds what nobody caught; `network` is where its connections live."""

    def __init__(self, rng: Random, *, executor_latency: Latency = _EXECUTOR_LATENCY) -> None:
        super().__init__()
        self.executor_latency = executor_latency
        self._rng = Random(rng.getrandbits(64))
        self.network = Network(self, Random(rng.getrandbits(64)))
        self._now = 0.0
        self._serial = 0
        self._job_stall_s: float | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # of any result type
        self._failed: list[asyncio.Task[Any]] = []
        self._reported: list[Unhandled] = []
        self._paused: dict[Life, list[asyncio.Handle]] = {}  # what each of them would have done meanwhile
        self._selector = self  # BaseEventLoop asks this for events: see `select`
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._report)

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """The calling code blocks: an executor job ends later, but blocked loop code delays everybody."""
        if self._job_stall_s is None:
            self._now += seconds
        else:
            self._job_stall_s += seconds

    @property
    def unhandled(self) -> list[Unhandled]:
        """Errors that reached the loop, and those of tasks that nobody awaited. Ask when all is over: a
        task that has failed and is to be awaited later counts too."""
        for task in self._failed:
            if _is_unretrieved(task):
                self._reported.append(Unhandled(f"task {task.get_name()} failed", task.exception()))
        self._failed.clear()
        return self._reported

    def forget(self, life: Life) -> None:
        """Drop every timer and executor job that code of this life has scheduled."""
        for handle in self._scheduled:  # type: ignore[attr-defined]  # private to asyncio, but stable
            if handle._context.get(current_life) is life:
                handle.cancel()

    def pause(self, life: Life) -> None:
        """From the next turn of the loop on nothing runs that belongs to this life; time goes on without it."""
        if life.is_alive and not life.is_paused:
            life.is_paused = True
            self._paused[life] = []

    def resume(self, life: Life) -> None:
        """Everything that was due meanwhile happens now, in the order in which it became due."""
        if not life.is_paused:
            return
        life.is_paused = False
        for handle in self._paused.pop(life):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                handle._scheduled = True  # type: ignore[attr-defined]  # private to asyncio, but stable
                heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]  # as above
            else:
                self._ready.append(handle)  # type: ignore[attr-defined]  # as above

    def _run_once(self) -> None:
        if self._paused:
            self._set_aside()
        super()._run_once()  # type: ignore[misc]  # private to asyncio, but stable

    def _set_aside(self) -> None:
        """Whatever paused lives would do in this turn. What falls due later in it was scheduled by nobody: their code does
        not run."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]  # as above
        for _ in range(len(ready)):
            handle = ready.popleft()
            if _is_paused(handle):
                self._paused[handle._context.get(current_life)].append(handle)
            else:
                ready.append(handle)
        kept = [handle for handle in timers if not _is_paused(handle)]
        if len(kept) < len(timers):
            for handle in sorted(handle for handle in timers if _is_paused(handle)):
                handle._scheduled = False
                self._paused[handle._context.get(current_life)].append(handle)
            heapq.heapify(kept)
            self._scheduled[:] = kept  # type: ignore[attr-defined]  # as above

    def cancel_leftovers(self) -> None:
        self.run_until_complete(cancel_all(lambda: list(self._tasks)))
        self.run_until_complete(self.shutdown_asyncgens())

    def close(self) -> None:
        if not self.is_closed():
            self.network.shut_down()
        super().close()

    def create_future(self) -> asyncio.Future[Any]:
        self._serial += 1
        return _SimFuture(self, self._serial)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        life = current_life.get()
        if life is not None and not life.is_alive:
            future.cancel()
        else:
            self.call_later(self.executor_latency.draw(self._rng), self._run_job, future, func, args)
        return future

    async def create_connection(  # type: ignore[override]  # only the options that make sense in memory
        self, protocol_factory: Callable[[], P], host: str | None = None, port: int = 0, **options: object
    ) -> tuple[SimTransport, P]:
        _refuse_real(options)
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # only the options that make sense in memory
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        start_serving: bool = True,
        **options: object,
    ) -> SimServer:
        _refuse_real(options)
        server = self.network.listen(protocol_factory, host, port)
        if start_serving:
            await server.start_serving()
        return server

    def select(self, timeout: float | None) -> list[object]:
        """Called by `BaseEventLoop` where it would wait for sockets."""
        if timeout is None:
            raise Deadlock(
                f"nothing left to do at {self._now:.6f} s, waiting: {_describe(list(self._tasks))}"
            )
        self._now += timeout
        return []

    def _process_events(self, events: list[object]) -> None:
        """There are none: everything that happens is a timer."""

    def _write_to_self(self) -> None:
        """Nothing to wake: there is no other thread."""

    def _run_job(self, future: asyncio.Future[T], func: Callable[[*Ts], T], args: tuple[*Ts]) -> None:
        life = current_life.get()
        if life is not None and not life.is_alive:
            return
        if future.cancelled() and self._rng.random() < 0.5:
            return  # it was still queued; a job that has begun goes on though nobody waits for it
        self._job_stall_s = 0.0
        try:
            settle = partial(future.set_result, func(*args))
        except Exception as error:  # noqa: BLE001  # it belongs to whoever awaits the future
            settle = partial(future.set_exception, error)
        delay_s = self._job_stall_s + self.executor_latency.draw(self._rng)
        self._job_stall_s = None
        self.call_later(delay_s, _deliver, future, settle)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._serial += 1
        life = current_life.get() if context is None else context.get(current_life)
        task = _SimTask(coro, loop=loop, serial=self._serial, context=context)
        self._tasks[task] = None
        if life is not None:
            life.tasks[task] = None
            if not life.is_alive:
                task.cancel()
        task.add_done_callback(lambda task: self._finish(task, life))
        return task

    def _finish(self, task: asyncio.Task[Any], life: Life | None) -> None:
        del self._tasks[task]
        if life is not None:
            del life.tasks[task]
            if not life.is_alive and not task.cancelled():
                task.exception()  # retrieved: nobody is left to care how a dead process failed
        self._failed = [failed for failed in (*self._failed, task) if _is_unretrieved(failed)]

    def _report(self, loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
        error = details.get("exception")
        handle = details.get("handle")
        life = handle._context.get(current_life) if handle is not None else None
        is_dead = life is not None and not life.is_alive
        # Python 3.11's streams ask a cancelled connection task for its exception, which raises this.
        if not is_dead and not isinstance(error, asyncio.CancelledError):
            self._reported.append(Unhandled(details["message"], error))


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int) -> T:
    """Run a program to its end in a loop of its own; raises what it left unhandled."""
    loop = SimLoop(Random(seed))
    try:
        try:
            result = loop.run_until_complete(main(loop))
        finally:
            loop.cancel_leftovers()
        if loop.unhandled:
            raise ExceptionGroup("unhandled in the simulation", [_as_error(item) for item in loop.unhandled])
        return result
    finally:
        loop.close()


async def cancel_all(tasks: Callable[[], list[asyncio.Task[Any]]]) -> None:
    """Cancel the tasks, and those they start while they end, until none is left. Takes no virtual time: a
    task that waits for something while it cleans up is cancelled again."""
    for _ in range(_CANCEL_ROUNDS_MAX):
        others = [task for task in tasks() if task is not asyncio.current_task()]
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.sleep(0)
    raise Deadlock(f"these tasks refuse to end: {_describe(others)}")


class _SimTask(asyncio.Task[Any]):
    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        serial: int,
        context: contextvars.Context | None,
    ) -> None:
        self._serial = serial
        super().__init__(coro, loop=loop, name=f"sim-{serial}", context=context)

    def __hash__(self) -> int:
        return self._serial


class _SimFuture(asyncio.Future[Any]):
    def __init__(self, loop: asyncio.AbstractEventLoop, serial: int) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


def _is_paused(handle: asyncio.Handle) -> bool:
    life = handle._context.get(current_life)  # type: ignore[attr-defined]  # private to asyncio, but stable
    return life is not None and life.is_paused and not handle.cancelled()


def _deliver(future: asyncio.Future[T], settle: Callable[[], None]) -> None:
    if not future.cancelled():
        settle()


def _is_unretrieved(task: asyncio.Task[Any]) -> bool:
    return task._log_traceback  # asyncio's own mark for it


def _as_error(item: Unhandled) -> Exception:
    return (
        item.error if isinstance(item.error, Exception) else RuntimeError(f"{item.message}: {item.error!r}")
    )


def _refuse_real(options: dict[str, object]) -> None:
    for name in ("ssl", "sock"):
        if options.get(name) is not None:
            raise NotImplementedError(f"the simulated network has no {name}")


def _describe(tasks: list[asyncio.Task[Any]]) -> str:
    return ", ".join(f"{task.get_name()} at {_place(task)}" for task in tasks) or "nobody"


def _place(task: asyncio.Task[Any]) -> str:
    """The innermost line of the code that a task waits in."""
    place = "?"
    coro: object = task.get_coro()
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        coro = coro.cr_await  # type: ignore[attr-defined]  # whatever has a cr_frame has it
    return place
