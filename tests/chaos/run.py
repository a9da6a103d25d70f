"""A whole run: a cluster, loads on it, faults for a while, then peace; what is left is read, and all of it is checked."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.checkers import Found, check
from tests.chaos.faults import Scene
from tests.chaos.history import Event, Recorder, read_history
from tests.chaos.load.producing import TOPIC
from tests.chaos.load.registry import FINAL, LOADS
from tests.chaos.load_process import LoadFailed, LoadProcess
from tests.chaos.loopback import loopback_world
from tests.chaos.namespaces import NamespaceWorld
from tests.chaos.nemesis import Nemesis
from tests.chaos.observer import Observer
from tests.chaos.supervised import supervised_world
from tests.chaos.words import say
from tests.chaos.world import World

_FORM_S: Final = 60.0  # until a new cluster is one
_HEAL_S: Final = 120.0
_COMPLAINT: Final = re.compile(r"^\S+ (error|critical) |^[\w.]*(Error|Exception|Violation)\b")


WORLDS: Final[Mapping[str, Callable[[Path, int, Path | None], World]]] = {
    "namespaces": NamespaceWorld,
    "loopback": loopback_world,
    "local": supervised_world,  # as `goqueue serve --nodes` makes it
}


class Plan(NamedTuple):
    world: str
    node_count: int
    loads: Sequence[str]
    faults: Sequence[str]
    seconds: float
    period_s: float
    seed: int
    many: int = 1
    is_patient: bool = True
    older: Path | None = None  # a checkout of another version, which all nodes begin with


class Outcome(NamedTuple):
    history: list[Event]
    found: Mapping[str, Found]
    failures: Sequence[str]  # of the cluster, beside what the history shows
    complaints: Sequence[str] = ()  # what the nodes logged as errors

    @property
    def is_right(self) -> bool:
        return not self.failures and not any(one.count for one in self.found.values())


@contextmanager
def opened(plan: Plan, folder: Path) -> Iterator[World]:
    world = WORLDS[plan.world](folder, plan.node_count, plan.older)
    try:
        yield world
    finally:
        world.close()


def run(plan: Plan, world: World, folder: Path) -> Outcome:
    with ThreadPoolExecutor(world.node_count) as pool:
        list(pool.map(world.nodes.start, range(1, world.node_count + 1)))
    with ExitStack() as stack, (folder / "nemesis.jsonl").open("wb") as file:
        observer = Observer(world, folder)
        stack.callback(observer.close)
        scene = Scene(world, observer, random.Random(plan.seed), _topic(plan.loads))
        nemesis = Nemesis(
            scene,
            Recorder(file, "nemesis"),
            plan.faults,
            period_s=plan.period_s,
            many=plan.many,
            is_patient=plan.is_patient,
        )
        nemesis.wait_until_well(time.monotonic() + _FORM_S)
        loads = [_start(world, name, folder, plan.seed, stack) for name in plan.loads]
        say(f"{len(loads)} loads on {world.node_count} nodes")
        nemesis.run(time.monotonic() + plan.seconds)
        world.heal()
        nemesis.mourn()
        failures = nemesis.failures
        if not nemesis.wait_until_well(time.monotonic() + _HEAL_S):
            failures.append(f"{_HEAL_S:.0f} s after the last fault partitions still lack replicas or leaders")
        say("all is healed; the loads come to their ends")
        failures += _end(loads, plan.loads)
        final = _start(world, FINAL, folder, plan.seed, stack)
        final.stop()
        failures += _await(final)
    files = [*(load.history for load in loads), final.history, folder / "nemesis.jsonl"]
    history = read_history(files)
    return Outcome(history, check(history), failures, _complaints(folder))


def again(folder: Path) -> Outcome:
    """The check of a run that was kept."""
    history = read_history(sorted(folder.glob("*.jsonl")))
    return Outcome(history, check(history), (), _complaints(folder))


def _start(world: World, name: str, folder: Path, seed: int, stack: ExitStack) -> LoadProcess:
    load = LoadProcess(world, name, folder=folder, seed=seed)
    stack.callback(load.close)
    load.wait_until_ready()
    return load


def _end(loads: Sequence[LoadProcess], names: Sequence[str]) -> list[str]:
    """Whoever writes for others first: those then work off what is left. What failed is given back."""
    failures: list[str] = []
    writers = {need for name in names for need in LOADS[name].needs}
    for is_writer in (True, False):
        ending = [load for load in loads if (load.name in writers) is is_writer]
        for load in ending:
            load.stop()
        for load in ending:
            failures += _await(load)
    return failures


def _await(load: LoadProcess) -> list[str]:
    try:
        load.wait()
    except LoadFailed as error:
        say(str(error))
        return [str(error)]
    return []


def _complaints(folder: Path) -> list[str]:
    """Lines of level error, and the last lines of tracebacks."""
    found = []
    for path in sorted(folder.glob("node-*.log")):
        lines = path.read_text(errors="replace").splitlines()
        found += [f"{path.stem}: {line}" for line in lines if _COMPLAINT.search(line)]
    return found


def _topic(names: Sequence[str]) -> str:
    """Whose leaders are killed: those of the first load's topic."""
    return next(iter(LOADS[names[0]].topics), TOPIC)
