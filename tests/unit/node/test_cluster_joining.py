"""What a node says when it joins: also where its heartbeat is not known before the answer has come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from goqueue.core.cluster.nodes import Endpoints
from goqueue.model.cluster_errors import NameTaken, PeerUnreachable
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.membership import Membership
from goqueue.node.cluster.ports import Beat, BeatAnswer, Done, Join, PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.config import ClusterConfig
from goqueue.node.metadata import Metadata
from goqueue.sim.loop import SimLoop, run

ENDPOINTS = Endpoints("h:1", "h:2", "h:3")
LOST = [("orders", 0)]


class Others:
    """The quorum and the controllers, as one node finds them: n1 takes nothing any more once it is dead, n3 is the next. `heard` are the
    first words of each incarnation, the only ones that count; `said` are all of them."""

    name, applied_index = "n2", 0

    def __init__(self) -> None:
        self.raft = SimpleNamespace(
            voters=("n1", "n2", "n3"), is_leader=False, followed_ms=lambda now_ms: None
        )
        self.leader = "n1"
        self.is_silent = False
        self.heard: dict[str, Join] = {}
        self.said: list[Join] = []
        self.known: str | None = None
        self.is_taken = False

    def take_name(self) -> None:
        self.known, self.is_taken = "another", True

    def forget(self) -> None:
        """The node was removed, say."""
        self.known = None

    async def until_led(self) -> str:
        return self.leader

    async def until_applied(self, index: int) -> None:
        return None

    async def join(self, target: str, join: Join) -> Done:
        self.said.append(join)
        if target == "n1" and self.is_silent:
            await asyncio.Event().wait()
        if self.is_taken:
            raise NameTaken(join.name, "elsewhere:3", join.endpoints.cluster)
        self.heard.setdefault(join.incarnation, join)
        self.known = join.incarnation
        return Done(1, [])

    async def beat(self, target: str, beat: Beat) -> BeatAnswer:
        if target == "n1" and self.is_silent:
            raise PeerUnreachable("n1 is dead")
        return BeatAnswer(target, 1, is_known=beat.incarnation == self.known, is_fenced=True)


def member(others: Others) -> Membership:
    catalog = SimpleNamespace(catalog=SimpleNamespace(node=lambda name: object()))
    fake: Any = others
    return Membership(
        ClusterConfig(),
        cast(Metadata, catalog),
        cast(Quorum, fake),
        cast(Controller, None),
        cast(PeerLinks, fake),
        "a",
        "1",
    )


def test_a_heartbeat_that_is_not_known_does_not_get_ahead_of_what_is_lost() -> None:
    """The controller dies while the node reports what it has lost; the heartbeat finds the next one first."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=[])
        beating = asyncio.ensure_future(membership.run())
        await asyncio.sleep(0.01)
        others.is_silent = True
        membership.begin_again("b")
        reporting = asyncio.ensure_future(membership.join(ENDPOINTS, lost=LOST, previous=[]))
        await asyncio.sleep(0.01)
        others.leader = "n3"
        await asyncio.sleep(20)
        assert not reporting.done(), "its call hangs"
        assert others.known == "b"
        assert others.heard["b"].lost == LOST
        async with asyncio.timeout(120):
            await reporting
        beating.cancel()

    run(main, seed=1)


def test_what_was_lost_is_not_said_again_once_it_was_heard() -> None:
    """By then it may have been fetched again, and be all that there is."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=[])
        beating = asyncio.ensure_future(membership.run())
        membership.begin_again("b")
        await membership.join(ENDPOINTS, lost=LOST, previous=[])
        others.forget()
        await asyncio.sleep(20)
        assert others.known == "b"
        assert [(join.incarnation, join.lost) for join in others.said] == [("a", []), ("b", LOST), ("b", [])]
        beating.cancel()

    run(main, seed=1)


def test_a_process_that_joins_again_says_that_it_was_the_last_one() -> None:
    """If it is not, it stood still while another one was in its place, and has only what was there before that."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=["x", "a"])
        beating = asyncio.ensure_future(membership.run())
        for _ in range(2):
            others.forget()
            await asyncio.sleep(20)
        assert [join.previous for join in others.said] == [["x", "a"]] * 3
        membership.begin_again("b")
        await membership.join(ENDPOINTS, lost=LOST, previous=[])
        others.forget()
        await asyncio.sleep(20)
        assert [join.previous for join in others.said[3:]] == [[], ["b"]]
        beating.cancel()

    run(main, seed=1)


def test_a_process_ends_that_wants_to_join_again_and_finds_that_another_has_its_name() -> None:
    """It stood still meanwhile. No log has to reach it for that: if it is not among the configured peers, the others look for it where the
    other one is."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=[])
        beating = asyncio.ensure_future(membership.run())
        await asyncio.sleep(0.01)
        others.take_name()
        await asyncio.wait([beating], timeout=20)
        assert isinstance(beating.exception(), NameTaken)
        assert [join.is_again for join in others.said] == [False, True]

    run(main, seed=1)


def test_a_process_that_has_joined_under_its_next_incarnation_does_not_end_for_what_it_asked_before() -> None:
    """The node joins again as it was, and reports what is lost before that is decided."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=[])
        others.forget()
        hold = asyncio.Event()
        join = others.join

        async def held(target: str, asked: Join) -> Done:
            if asked.incarnation == "a":
                await hold.wait()
                raise NameTaken("n2", "h:3", "h:3")
            return await join(target, asked)

        setattr(others, "join", held)  # noqa: B010 - for mypy
        beating = asyncio.ensure_future(membership.run())
        await asyncio.sleep(0.01)  # it joins again, as "a"
        membership.begin_again("b")
        await membership.join(ENDPOINTS, lost=LOST, previous=["a"])
        hold.set()
        await asyncio.sleep(20)
        assert not beating.done()
        assert others.known == "b"
        assert others.heard["b"].is_again
        beating.cancel()

    run(main, seed=1)


def test_an_answer_to_an_older_incarnation_does_not_count_for_the_next() -> None:
    """The node joins again as it was, and reports what is lost before that is answered."""

    async def main(loop: SimLoop) -> None:
        others = Others()
        membership = member(others)
        await membership.join(ENDPOINTS, lost=[], previous=[])
        hold = asyncio.Event()
        join = others.join

        async def slowly(target: str, asked: Join) -> Done:
            if asked.incarnation == "a":
                await hold.wait()
                return await join(target, asked)
            await asyncio.sleep(1)
            raise PeerUnreachable("n1 does not answer")

        others.forget()
        setattr(others, "join", slowly)  # noqa: B010 - for mypy
        beating = asyncio.ensure_future(membership.run())
        await asyncio.sleep(0.01)  # it joins again, as "a"
        membership.begin_again("b")
        reporting = asyncio.ensure_future(membership.join(ENDPOINTS, lost=LOST, previous=[]))
        await asyncio.sleep(0.5)
        hold.set()
        await asyncio.sleep(0.1)
        setattr(others, "join", join)  # noqa: B010 - for mypy
        await asyncio.sleep(20)
        await reporting
        assert others.heard["b"].lost == LOST
        beating.cancel()

    run(main, seed=1)
