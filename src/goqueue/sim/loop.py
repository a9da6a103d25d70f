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

_CANCELLED_MAX = 500  # so many timers may lie around that nobody waits for any more
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
        self._timers: list[
            tuple[float, int, asyncio.TimerHandle]
        ] = []  # a heap; of two at once the older comes first
        self._cancelled_count = 0  # how many of them are of no use any more
        self._paused: dict[Life, list[asyncio.Handle]] = {}  # what each of them would have done meanwhile
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

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _SimHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # private to asyncio, but stable
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _SimTimer(when, callback, args, self, context)
        self._push(timer)
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def forget(self, life: Life) -> None:
        """Drop every timer and executor job that code of this life has scheduled."""
        for _, _, handle in self._timers:
            if _life_of(handle) is life:
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
                self._push(handle)
            else:
                self._ready.append(handle)  # type: ignore[attr-defined]  # as above

    def _push(self, timer: asyncio.TimerHandle) -> None:
        self._serial += 1
        heapq.heappush(self._timers, (timer._when, self._serial, timer))  # type: ignore[attr-defined]  # as above
        timer._scheduled = True  # type: ignore[attr-defined]  # as above: it tells the loop when it is cancelled

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_count += 1

    def _run_once(self) -> None:
        """Turn after turn until somebody stops it, each as `BaseEventLoop` makes it, without what only a loop with sockets and
        threads needs."""
        ready = self._ready  # type: ignore[attr-defined]  # as above
        while True:
            self._take_due()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001  # as asyncio: whatever it is, the loop goes on
                        self._report_failed(handle, error)
            if self._stopping:  # type: ignore[attr-defined]  # as above
                return

    def _take_due(self) -> None:
        """Begin a turn: the next thing to happen is ready, and all that happens at the same time."""
        if self._paused:
            self._set_aside()
        if self._cancelled_count > _CANCELLED_MAX:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_count = 0
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]  # as above
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]  # as above
            if not timers:
                raise Deadlock(
                    f"nothing left to do at {self._now:.6f} s, waiting: {_describe(list(self._tasks))}"
                )
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]  # as above
            if self._paused and _is_paused(timer):
                self._paused[timer._context.get(current_life)].append(timer)  # type: ignore[attr-defined]  # as above
            else:
                ready.append(timer)

    def _set_aside(self) -> None:
        """Whatever paused lives would do in this turn, beside timers: those are set aside when they are due."""
        ready = self._ready  # type: ignore[attr-defined]  # as above
        for _ in range(len(ready)):
            handle = ready.popleft()
            if _is_paused(handle):
                self._paused[handle._context.get(current_life)].append(handle)
            else:
                ready.append(handle)

    def _report_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

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
        task = _SimTask(coro, loop=loop, serial=self._serial, life=life, context=context)
        self._tasks[task] = None
        if life is not None:
            life.tasks[task] = None
            if not life.is_alive:
                task.cancel()
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[Any]) -> None:
        life = task.life  # type: ignore[attr-defined]  # all of them are made above
        del self._tasks[task]
        if life is not None:
            del life.tasks[task]
            if not life.is_alive and not task.cancelled():
                task.exception()  # retrieved: nobody is left to care how a dead process failed
        if _is_unretrieved(task):
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


class _SimHandle(asyncio.Handle):
    """Made without asking whether the loop is debugged. Most of what a run makes are these."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _SimTimer(asyncio.TimerHandle):
    """As above."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False


class _SimTask(asyncio.Task[Any]):
    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        serial: int,
        life: Life | None,
        context: contextvars.Context | None,
    ) -> None:
        self._serial = serial
        self.life = life
        super().__init__(coro, loop=loop, name=f"sim-{serial}", context=context)

    def __hash__(self) -> int:
        return self._serial


class _SimFuture(asyncio.Future[Any]):
    def __init__(self, loop: asyncio.AbstractEventLoop, serial: int) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


def _life_of(handle: asyncio.Handle) -> Life | None:
    return handle._context.get(current_life)  # type: ignore[attr-defined,no-any-return]  # private to asyncio, but stable


def _is_paused(handle: asyncio.Handle) -> bool:
    life = _life_of(handle)
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
