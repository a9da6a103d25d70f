"""One broker on one disk, life after life: some fault, some end, the next start. What every workload on it shares."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from goqueue.log.check import check_folder
from goqueue.node.clock import Clock
from goqueue.sim.broker import SimBroker
from goqueue.sim.disk import SimDisk
from goqueue.sim.faults import inject
from goqueue.sim.ids import SimIds
from goqueue.sim.loop import SimLoop

_START_COUNT_MAX = 10
_LIFE_S = (2.0, 9.0)
_TORN = ("the checksum does not match", "magic is 0")  # the second where the tear goes through a header


class Lives:
    """`violate` hears what must not happen, `when_cut` of every power cut."""

    def __init__(
        self,
        loop: SimLoop,
        rng: Random,
        violate: Callable[[str], None],
        when_cut: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._rng = rng
        self._violate = violate
        self._when_cut = when_cut
        self.disk = SimDisk(self._child(), stall=loop.stall)
        self.broker = SimBroker(loop, self.disk, SimIds(self._child()), clock)
        self.names: list[str] = []  # the fault and the end of each
        self._power_was_cut = False

    def _child(self) -> Random:
        return Random(self._rng.getrandbits(64))

    async def begin(self) -> None:
        """The first start, without faults."""
        if not await self.broker.start():
            raise AssertionError("the broker did not start on an empty disk")

    async def live(self, meanwhile: Callable[[], str] = str) -> None:
        """Some traffic under some fault, an end of some kind, and the next start; `meanwhile` there is no broker."""
        fault = inject(self.disk, self._rng)
        is_up = await self.broker.survives(self._rng.uniform(*_LIFE_S))
        self.names.append(f"{fault}/{await self.end(is_up=is_up)}{meanwhile()}")
        await self.restart()

    async def end(self, *, is_up: bool) -> str:
        how = self._rng.choice(("kill", "power", "power", "clean")) if is_up else "cut"
        if how == "clean" and not await self.broker.stop():
            how = "cut"
        if how in ("cut", "power"):
            self._note_cut()
        await self.broker.crash(power_cut=how == "power")
        return how

    async def restart(self) -> None:
        """Faults that have not struck yet may strike recovery; then the disk is calm."""
        for _ in range(_START_COUNT_MAX):
            if await self.broker.start():
                self.disk.calm()
                return
            self._note_cut()
        self._violate("the broker does not start any more")

    def _note_cut(self) -> None:
        self._power_was_cut = True
        self._when_cut()

    async def stop_soundly(self, is_known: Callable[[str], bool] = lambda problem: False) -> None:
        """After a clean stop the folder has no damage but what is known, and what power cuts tore: that stays and is said
        (ADR 16)."""
        await self.broker.stop()
        for problem in check_folder(self.disk.mount()).problems:
            is_torn = self._power_was_cut and any(torn in problem for torn in _TORN)
            if not is_torn and not is_known(problem):
                self._violate(f"check: {problem}")

    async def finish(self) -> None:
        await self.broker.crash(power_cut=False)
        for problem in self.broker.problems:
            self._violate(problem)
