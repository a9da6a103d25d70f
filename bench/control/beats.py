"""What it costs the controller that every node says that it lives: the real controller over a catalogue of the size that is asked about.

`controller_s` is what the controller itself does with a heartbeat. `handled_s` has also what is done with every message between nodes: its
signature is verified, the body decoded, the answer encoded and signed. HTTP and sockets are not in it; `bench.control.live` has those.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from bench.control.plane import LIMITS, ControlPlane
from bench.line import require
from goqueue.core.raft.raft import Raft
from goqueue.model.settings import TopicSettings
from goqueue.node.clock import SystemClock
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.exchange import BEATS, ENCODER, HEARTBEAT
from goqueue.node.cluster.ports import Beat
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.cluster.secret import Secret
from goqueue.node.config import ClusterConfig
from goqueue.node.ids import RandomIds
from goqueue.node.metadata import Metadata

_KEY = b"every node of this process knows it"
_NOW_MS = 1


@dataclass(frozen=True, slots=True)
class Beats:
    """For one heartbeat."""

    controller_s: float
    handled_s: float
    per_s: float  # how many come, with the default timings

    @property
    def share(self) -> float:
        """Of a core."""
        return self.handled_s * self.per_s


class _Office:
    """Of the quorum, what the controller asks about: who it is, and that it is the controller."""

    def __init__(self, name: str, raft: Raft, applied_index: int) -> None:
        self.name = self.leader = name
        self.raft = raft
        self.applied_index = applied_index
        self.is_active = True

    def when_changed(self, watcher: Callable[[], None]) -> None:
        """It does not change."""

    def set_observers(self, names: Collection[str]) -> None:
        """They have been told."""


def measure_beats(plane: ControlPlane, *, count: int) -> Beats:
    """`count` heartbeats, of all nodes in turn."""
    return asyncio.run(_measure(plane, count))


async def _measure(plane: ControlPlane, count: int) -> Beats:
    config, name = ClusterConfig(), plane.controller.name
    controller = _controller(plane, config)
    beats = [
        Beat(node.name, node.incarnation, plane.controller.applied_index, is_ready=True)
        for node in plane.catalog.nodes()
    ]
    for beat in beats:  # the first of each is also the news of its level
        require((await controller.beat(beat)).is_known, f"the controller does not know {beat.name}")
    began = time.thread_time()
    for serial in range(count):
        await controller.beat(beats[serial % len(beats)])
    alone_s = time.thread_time() - began
    theirs, ours = Secret(_KEY), Secret(_KEY)
    requests = [_signed(theirs, beats[serial % len(beats)], name, serial) for serial in range(count)]
    began = time.thread_time()
    for header, body in requests:
        ours.verify(header, "POST", HEARTBEAT, body, target=name, now_ms=_NOW_MS, cluster_id=None)
        answer = ENCODER.encode(await controller.beat(BEATS.decode(body)))
        ours.sign_answer(header, 200, answer)
    whole_s = time.thread_time() - began
    return Beats(alone_s / count, whole_s / count, len(beats) * 1_000 / config.heartbeat_ms)


def _controller(plane: ControlPlane, config: ClusterConfig) -> Controller:
    metadata = Metadata(LIMITS, TopicSettings(), SystemClock(), config.command_timeout_ms)
    metadata.catalog = plane.catalog
    member = plane.controller
    office = _Office(member.name, member.raft, member.applied_index)
    return Controller(config, metadata, cast(Quorum, office), RandomIds())


def _signed(secret: Secret, beat: Beat, target: str, serial: int) -> tuple[str, bytes]:
    body = ENCODER.encode(beat)
    header = secret.sign(
        "POST",
        HEARTBEAT,
        body,
        source=beat.name,
        target=target,
        cluster_id=None,
        timestamp_ms=_NOW_MS,
        nonce=str(serial),
    )
    return header, body
