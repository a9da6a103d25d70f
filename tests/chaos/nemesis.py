"""Breaks the cluster in one way after another, seeded, and writes down when."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.chaos.faults import FAULTS, Begun, Scene
from tests.chaos.history import Op, Phase, Recorder, wall_ms
from tests.chaos.node_process import NodeFailed
from tests.chaos.words import say
from tests.chaos.world import name_of

_HOLD_S: Final = (2.0, 6.0)
_WELL_S: Final = 30.0


class Nemesis:
    def __init__(
        self,
        scene: Scene,
        recorder: Recorder,
        kinds: Sequence[str],
        *,
        period_s: float,
        many: int,
        is_patient: bool = True,
    ) -> None:
        """Where it is not patient, the next fault comes on time, though the cluster has not got over the last one."""
        self._scene = scene
        self._recorder = recorder
        self._kinds = self._endless(kinds)
        self._period_s = period_s
        self._many = many
        self._is_patient = is_patient
        self.failures: list[
            str
        ] = []  # of nodes: they ended by themselves, or did not end or start when they were told to

    def run(self, ends_at: float) -> None:
        """Until this time on the monotonic clock; everything is undone then."""
        while time.monotonic() + self._period_s < ends_at:
            next_at = time.monotonic() + self._period_s
            self._strike()
            self.mourn()
            if self._is_patient:
                self.wait_until_well(min(next_at + _WELL_S, ends_at))
            time.sleep(max(0.0, min(next_at, ends_at) - time.monotonic()))
        time.sleep(max(0.0, ends_at - time.monotonic()))

    def wait_until_well(self, deadline: float) -> bool:
        """Whether every partition had all its replicas again by then."""
        while not self._scene.observer.look(self._scene.topic).is_well:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def mourn(self) -> None:
        """Nodes that ended though nobody asked them to are started again, and remembered."""
        for node in self._scene.nodes:
            if not self._scene.world.nodes.is_running(node):
                self.failures.append(f"{name_of(node)} ended by itself")
                number = self._recorder.invoke("crash", Op.FAULT)
                self._scene.world.nodes.start(node)
                self._told("crash", Phase.OK, number, self.failures[-1])

    def _strike(self) -> None:
        begun: list[tuple[str, int, Begun]] = []
        try:
            for _ in range(self._many):
                with self._noting_failures():
                    begun.append(self._begin(next(self._kinds)))
            time.sleep(self._scene.chance.uniform(*_HOLD_S))
        finally:
            for kind, number, one in reversed(begun):
                with self._noting_failures():
                    one.undo()
                self._told(kind, Phase.OK, number, f"end of: {one.what}")

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """A node that does not do as it is told fails the run, and the run goes on: what clients saw of it counts."""
        try:
            yield
        except NodeFailed as error:
            say(str(error))
            self.failures.append(str(error))

    def _begin(self, kind: str) -> tuple[str, int, Begun]:
        number = self._recorder.invoke(kind, Op.FAULT)
        begun = FAULTS[kind](self._scene)
        say(f"{kind}: {begun.what}")
        return kind, number, begun

    def _told(self, kind: str, phase: Phase, number: int, note: str) -> None:
        self._recorder.record(kind, Op.FAULT, phase, number=number, note=note, wall_ms=wall_ms())

    def _endless(self, kinds: Sequence[str]) -> Iterator[str]:
        """In rounds: each kind comes once before one comes twice."""
        while True:
            mixed = list(kinds)
            self._scene.chance.shuffle(mixed)
            yield from mixed
