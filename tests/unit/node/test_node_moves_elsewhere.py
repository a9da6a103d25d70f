"""Dead letters for a topic that another node leads: each arrives once, whichever side fails and whenever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.tenures import OTHER, Stage, on_stage, put

from goqueue.core.catalog import TopicCreated
from goqueue.core.cluster.partitions import new_partition
from goqueue.core.lease.events import Target
from goqueue.log.batch import decode_batch, read_header
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable
from goqueue.model.settings import TopicSettings
from goqueue.node.dead_letters.arrivals import Destinations
from goqueue.node.dead_letters.metrics import MoveMetrics
from goqueue.node.dead_letters.moves import Mover
from goqueue.node.metrics import Metrics
from goqueue.node.topic_table import OpenTopic

TARGET = Target("orders.dlq", 0)


class OtherNode:
    """The leader of the target. Each fault is of one call: it is refused, or its answer is lost."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.newest: dict[tuple[int, int], int] = {}
        self.faults: list[str] = []
        self.nodes: list[str] = []

    def name_of(self, number: int) -> str:
        return f"node-{number}"

    @property
    def number(self) -> int:
        return 1

    async def append(
        self, node: str, target: Target, producer: tuple[int, int], batch: bytes | None
    ) -> int | None:
        assert target == TARGET
        self.nodes.append(node)
        fault = self.faults.pop(0) if self.faults else ""
        await asyncio.sleep(0.1)
        if fault == "refused":
            raise NotLeader(*target)
        if batch is not None:
            self._store(producer, batch)
        if fault == "lost":
            raise PeerUnreachable("no answer")
        return self.newest.get(producer)

    def _store(self, producer: tuple[int, int], batch: bytes) -> None:
        header = read_header(batch)
        expected = self.newest.get(producer, -1) + 1
        if header.base_sequence < expected:
            return
        assert header.base_sequence == expected
        self.values += [record.value for record in decode_batch(batch, header)]
        self.newest[producer] = header.base_sequence + header.last_offset_delta


def play(scene: Callable[[Stage, OtherNode], Coroutine[Any, Any, None]]) -> None:
    async def main(stage: Stage) -> None:
        there = OtherNode()
        facts = TopicCreated(TARGET.topic, 2, 1, {}, 0)
        stage.table.put(OpenTopic(facts, TopicSettings(), 1, {}, (new_partition([OTHER, 1]),)))
        mover = Mover(
            None,  # type: ignore[arg-type]  # the topic is there
            stage.table,
            stage.ids,  # type: ignore[arg-type]  # all that is asked of the producers here
            Destinations(stage.clock, there, there, put),  # type: ignore[arg-type]  # all that is asked of it
            stage.guard,
            MoveMetrics(Metrics().registry),
            stage.clock,
            stage.spawn,
        )
        stage.when_moving = mover.wake
        await stage.lead()
        await scene(stage, there)

    on_stage(main, dead_letters=TARGET)


async def reject_all(stage: Stage) -> None:
    found = await stage.poll()
    await stage.queue.reject([one.receipt for one in found], reason="broken")


def open_moves(stage: Stage) -> int:
    return sum(len(ledger.state.moves) for ledger in stage.ledgers.all())


def test_dead_letters_go_to_the_node_that_leads_their_topic() -> None:
    async def scene(stage: Stage, there: OtherNode) -> None:
        await stage.publish(b"a", b"b", b"c")
        await reject_all(stage)
        await asyncio.sleep(5)
        assert there.values == [b"a", b"b", b"c"]
        assert set(there.nodes) == {"node-2"}
        assert open_moves(stage) == 0

    play(scene)


def test_a_lost_answer_or_a_refusal_leads_to_no_second_letter() -> None:
    async def scene(stage: Stage, there: OtherNode) -> None:
        there.faults = ["refused", "", "lost", "refused", "lost", ""]
        await stage.publish(b"a", b"b")
        await reject_all(stage)
        await asyncio.sleep(20)
        await stage.publish(b"c")
        await reject_all(stage)
        await asyncio.sleep(20)
        assert there.values == [b"a", b"b", b"c"]
        assert open_moves(stage) == 0

    play(scene)


def test_the_next_leader_of_the_ledger_goes_on_where_its_predecessor_was() -> None:
    async def scene(stage: Stage, there: OtherNode) -> None:
        there.faults = ["", "lost"]
        await stage.publish(b"a", b"b")
        await reject_all(stage)
        await asyncio.sleep(0.25)  # they are there, and nobody here knows
        assert there.values == [b"a", b"b"]
        await stage.follow()
        await asyncio.sleep(20)
        count = len(there.nodes)
        await stage.lead()
        await stage.publish(b"c")
        await asyncio.sleep(5)
        await reject_all(stage)
        await asyncio.sleep(20)
        assert len(there.nodes) > count
        assert there.values == [b"a", b"b", b"c"]
        assert open_moves(stage) == 0

    play(scene)


def test_nothing_is_sent_of_a_decision_that_is_not_committed() -> None:
    async def scene(stage: Stage, there: OtherNode) -> None:
        await stage.publish(b"a")
        found = await stage.poll()
        assert stage.leadership is not None
        stage.leadership.is_prompt = False
        rejecting = asyncio.ensure_future(stage.queue.reject([one.receipt for one in found], reason="broken"))
        await asyncio.sleep(5)
        assert there.values == []
        await stage.follow()
        await asyncio.gather(rejecting, return_exceptions=True)
        await asyncio.sleep(5)
        assert there.values == []

    play(scene)
