"""A simulated process: what it owns dies with it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from goqueue.sim.disk import SimDisk
from goqueue.sim.life import Life, current_life
from goqueue.sim.loop import SimLoop, cancel_all

T = TypeVar("T")


class Process:
    """One life on a host, from here to `crash`. To restart it, make another one on the same disk. A clean
    exit is a crash without power cut once its code has ended.

    Whatever is started by its code belongs to it: tasks, servers, connections, timers, executor jobs.
    """

    def __init__(self, loop: SimLoop, host: str, disk: SimDisk) -> None:
        self.host = host
        self.disk = disk.mount()
        self.died = asyncio.Event()
        self._loop = loop
        self._device = disk
        self._life = Life(host)
        self._context = contextvars.copy_context()
        self._context.run(current_life.set, self._life)
        disk.on_power_cut = self._die

    @property
    def is_alive(self) -> bool:
        return self._life.is_alive

    def spawn(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run code as this process."""
        return self._loop.create_task(coro, context=self._context.copy())

    def pause(self) -> None:
        """SIGSTOP: its code, its threads and its timers stand still, and what is sent to it waits in its sockets."""
        self._loop.pause(self._life)

    def resume(self) -> None:
        """SIGCONT: it goes on where it was, and sees that it is later."""
        self._loop.resume(self._life)

    async def crash(self, *, power_cut: bool) -> None:
        """Kill it (kill -9), or cut its power so that unsynced writes may be lost too.

        Its disk is dead before any of its code hears of it, so nothing a `finally` does can become durable
        or be sent. May be called for a process that `SimDisk.crash_after` has killed, to see its tasks end.
        """
        if asyncio.current_task() in self._life.tasks:
            raise RuntimeError(f"a task of the process on {self.host} cannot wait for its own end")
        if self.is_alive:
            if power_cut:
                self._device.crash()
            else:
                self._device.kill()
            self._die()
        await cancel_all(lambda: list(self._life.tasks))
        self._loop.forget(self._life)

    def _die(self) -> None:
        self._life.is_alive = False
        self._loop.resume(self._life)
        for socket in list(self._life.sockets):
            socket.die()
        for task in list(self._life.tasks):
            task.cancel()
        self._loop.forget(self._life)
        self.died.set()
