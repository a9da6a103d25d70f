"""Where requests belong, and how often they are sent there."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.core.cluster.nodes import NodeState
from goqueue.model.cluster_errors import CoordinationUnknown, NotCoordinator, NotLeader, PeerUnreachable
from goqueue.model.errors import GoQueueError, InvalidRequest, TimedOut
from goqueue.node import forwarding as forwarding_module
from goqueue.node.cluster.ports import Answer
from goqueue.node.forwarding import Elsewhere, Forwarding, OfGroup, OfPartition, together
from goqueue.sim.loop import run

NAMES = {1: "n1", 2: "n2", 3: "n3"}
LEADERS = {"t": [1, 2, 3, -1], "own": [1, 1]}


def make(coordinator: int = 2) -> Forwarding:
    """On node 1 of three, of which the third is fenced."""

    async def find(kind: object, key: str) -> int:
        return coordinator

    nodes = [
        SimpleNamespace(number=number, name=name, state=NodeState.FENCED if number == 3 else NodeState.ALIVE)
        for number, name in NAMES.items()
    ]
    catalog = SimpleNamespace(
        find=LEADERS.get,
        partitions_of=lambda topic: [SimpleNamespace(leader=one) for one in LEADERS[topic]],
        nodes=lambda: nodes,
    )
    directory = SimpleNamespace(
        number=1,
        name_of=NAMES.get,
        number_of={name: number for number, name in NAMES.items()}.get,
    )
    anything: Any = (directory, SimpleNamespace(catalog=catalog), SimpleNamespace(find=find), None)
    return Forwarding(*anything)


class Attempts:
    """Raises one error after the other, then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.count = 0

    async def here(self) -> str:
        return self._next("here")

    async def there(self, target: str) -> str:
        return self._next(target)

    def _next(self, where: str) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return where


def carry(attempts: Attempts, belonging: Any, *, may_repeat: bool = False) -> str:
    return run(
        lambda _: make().carry(belonging, attempts.here, attempts.there, may_repeat=may_repeat), seed=0
    )


def refusing(call: Callable[[], object]) -> GoQueueError:
    with pytest.raises(GoQueueError) as raised:
        call()
    return raised.value


def test_a_partition_belongs_to_its_leader() -> None:
    forwarding = make()
    assert [forwarding.leader_of("t", index) for index in range(3)] == [None, "n2", "n3"]
    assert isinstance(refusing(lambda: forwarding.leader_of("t", 3)), NotLeader)


def test_what_does_not_exist_is_refused_here() -> None:
    forwarding = make()
    assert forwarding.leader_of("nothing", 0) is None
    assert forwarding.leader_of("t", 99) is None
    assert forwarding.leads_all("nothing")


def test_whether_all_of_a_topic_is_led_here() -> None:
    assert make().leads_all("own")
    assert not make().leads_all("t")


def test_only_the_leader_may_answer_what_came_by_another_node() -> None:
    make().check_leads("t", 0)
    error = refusing(lambda: make().check_leads("t", 1))
    assert isinstance(error, NotLeader)
    assert error.details["leader"] == 2


def test_fenced_nodes_are_not_asked() -> None:
    assert make().others() == ["n2"]


def test_a_request_is_answered_where_it_belongs() -> None:
    assert carry(Attempts(), OfPartition("t", 0)) == "here"
    assert carry(Attempts(), OfPartition("t", 1)) == "n2"
    assert carry(Attempts(), OfGroup("g")) == "n2"


def test_who_is_not_the_right_node_any_more_is_asked_again() -> None:
    refusals = [
        NotLeader("t", 1, 3),
        NotCoordinator("no"),
        PeerUnreachable("nobody there"),
        Elsewhere(Answer(503, {}, b"")),
    ]
    attempts = Attempts(*refusals)
    assert carry(attempts, OfPartition("t", 1)) == "n2"
    assert attempts.count == len(refusals) + 1


def test_what_may_have_been_done_is_asked_again_only_if_it_may_be_repeated() -> None:
    for lost in (TimedOut("lost"), CoordinationUnknown("written, and another node leads")):
        attempts = Attempts(lost)
        assert refusing(lambda: carry(attempts, OfPartition("t", 1))) is lost  # noqa: B023 - called at once
        assert attempts.count == 1
        assert carry(Attempts(lost), OfPartition("t", 1), may_repeat=True) == "n2"


def test_other_errors_are_the_clients() -> None:
    attempts = Attempts(InvalidRequest("wrong"))
    assert isinstance(refusing(lambda: carry(attempts, OfPartition("t", 1), may_repeat=True)), InvalidRequest)
    assert attempts.count == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding_module, "PATIENCE_S", 0.0)
    assert isinstance(refusing(lambda: carry(Attempts(NotLeader("t", 1)), OfPartition("t", 1))), NotLeader)
    assert isinstance(refusing(lambda: carry(Attempts(), OfPartition("t", 3))), NotLeader)


def test_all_nodes_answer_or_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding_module, "PATIENCE_S", 0.0)
    monkeypatch.setitem(LEADERS, "full", [2, 1, 3, 2])
    attempts = Attempts()

    async def gather(topic: str | None) -> list[str]:
        return await make().all_of(
            topic, lambda part: attempts.here(), lambda target, part: attempts.there(f"{target} {part}")
        )

    assert asyncio.run(gather(None)) == ["here", "n2 []"]
    assert asyncio.run(gather("full")) == ["here", "n2 [0, 3]", "n3 [2]"]
    assert asyncio.run(gather("nothing")) == ["here"]
    assert isinstance(refusing(lambda: asyncio.run(gather("t"))), NotLeader)
    attempts = Attempts(PeerUnreachable("n2 is away"))
    assert isinstance(refusing(lambda: asyncio.run(gather(None))), PeerUnreachable)


def test_when_one_part_fails_the_others_are_given_up() -> None:
    ended: list[str] = []

    async def fail() -> str:
        raise TimedOut("no")

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("given up")
        return ""

    assert isinstance(refusing(lambda: asyncio.run(together([wait(), fail(), wait()]))), TimedOut)
    assert ended == ["given up", "given up"]


def test_parts_that_are_given_up_before_they_have_begun_leave_nothing_behind() -> None:
    async def work() -> str:
        return ""

    async def give_up() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await together([work(), work()])

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(give_up())
        gc.collect()
    assert [str(one.message) for one in warned] == []
