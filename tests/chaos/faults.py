"""The ways a cluster is broken. Each says what it does, and gives back how it is undone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.chaos.observer import Observer
from tests.chaos.shapes import SHAPES
from tests.chaos.world import World, name_of

_DELAY_MS: Final = (20, 300)
_KILOBITS: Final = (100, 1_000)

Undo = Callable[[], None]


class Scene(NamedTuple):
    world: World
    observer: Observer
    chance: random.Random
    topic: str  # whose leaders are of interest

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, self.world.node_count + 1)

    def victim(self) -> int:
        return self.chance.choice([node for node in self.nodes if self.world.nodes.is_running(node)])


class Begun(NamedTuple):
    what: str
    undo: Undo


Fault = Callable[[Scene], Begun]


def _kill(scene: Scene) -> Begun:
    return _kill_node(scene, scene.victim())


def _kill_controller(scene: Scene) -> Begun:
    controller = scene.observer.look().controller
    return _kill_node(scene, controller if _is_up(scene, controller) else scene.victim())


def _kill_leader(scene: Scene) -> Begun:
    leaders = [one for one in scene.observer.look(scene.topic).leaders if _is_up(scene, one)]
    return _kill_node(scene, scene.chance.choice(leaders) if leaders else scene.victim())


def _is_up(scene: Scene, node: int) -> bool:
    return node > 0 and scene.world.nodes.is_running(node)


def _kill_node(scene: Scene, node: int) -> Begun:
    scene.world.nodes.kill(node)
    return Begun(f"kill -9 {name_of(node)}", lambda: scene.world.nodes.start(node))


def _pause(scene: Scene) -> Begun:
    node = scene.victim()
    scene.world.nodes.pause(node)
    return Begun(f"pause {name_of(node)}", lambda: scene.world.nodes.resume(node))


def _restart(scene: Scene) -> Begun:
    node = scene.victim()
    scene.world.nodes.stop(node)
    return Begun(f"stop {name_of(node)}", lambda: scene.world.nodes.start(node))


def _rolling(scene: Scene) -> Begun:
    """One after the other, as for an upgrade; each is back before the next one goes."""
    for node in scene.nodes:
        scene.world.nodes.stop(node)
        scene.world.nodes.start(node)
    return Begun("stop and start every node", lambda: None)


def _upgrade(scene: Scene) -> Begun:
    """The next one that is not of this version; until the last they are of two. After that, one that is, as for the next version."""
    older = [one for one in scene.nodes if scene.world.nodes.is_older(one) and _is_up(scene, one)]
    node = older[0] if older else scene.victim()
    scene.world.nodes.stop(node)
    scene.world.nodes.upgrade(node)
    return Begun(f"upgrade {name_of(node)}", lambda: scene.world.nodes.start(node))


def _isolate(scene: Scene) -> Begun:
    node = scene.victim()
    scene.world.isolate(node)
    return Begun(f"isolate {name_of(node)}", scene.world.heal)


def _slow(scene: Scene) -> Begun:
    node, delay_ms = scene.victim(), scene.chance.randint(*_DELAY_MS)
    scene.world.slow(node, delay_ms)
    return Begun(f"{delay_ms} ms for {name_of(node)}", scene.world.heal)


def _reset(scene: Scene) -> Begun:
    node = scene.victim()
    scene.world.reset(node)
    return Begun(f"reset connections of {name_of(node)}", scene.world.heal)


def _narrow(scene: Scene) -> Begun:
    node, kilobits = scene.victim(), scene.chance.randint(*_KILOBITS)
    scene.world.narrow(node, kilobits)
    return Begun(f"{kilobits} kbit/s for {name_of(node)}", scene.world.heal)


def _full_disk(scene: Scene) -> Begun:
    node = scene.world.node_count
    scene.world.fill_disk(node)
    return Begun(f"fill the disk of {name_of(node)}", scene.world.heal)


def _cut(name: str) -> Fault:
    def begin(scene: Scene) -> Begun:
        cuts = sorted(SHAPES[name](scene.nodes, scene.chance))
        for source, target in cuts:
            scene.world.cut(source, target)
        return Begun(f"cut {' '.join(f'{one}>{other}' for one, other in cuts)}", scene.world.heal)

    return begin


FAULTS: Final[Mapping[str, Fault]] = {
    "kill": _kill,
    "kill-controller": _kill_controller,
    "kill-leader": _kill_leader,
    "pause": _pause,
    "restart": _restart,
    "rolling": _rolling,
    "upgrade": _upgrade,
    "isolate": _isolate,
    "slow": _slow,
    "reset": _reset,
    "narrow": _narrow,
    "full-disk": _full_disk,
    **{name: _cut(name) for name in SHAPES},
}


def possible(names: Sequence[str], world: World) -> tuple[list[str], dict[str, str]]:
    """Those that this world allows, and why not the others."""
    refused = {name: reason for name, reason in world.refusals.items() if name in names}
    if "ring" in names and world.node_count < 5:
        refused.setdefault("ring", "a ring of fewer than five nodes has no node that two others do not see")
    if "upgrade" in names and not any(map(world.nodes.is_older, range(1, world.node_count + 1))):
        refused.setdefault("upgrade", "all nodes are of this version; give --older CHECKOUT")
    return [name for name in names if name not in refused], refused
