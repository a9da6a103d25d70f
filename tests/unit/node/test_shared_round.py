"""One question on behalf of many, and nobody is given an answer to a question that was asked before it came."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from goqueue.model.errors import TimedOut
from goqueue.node.shared_round import SharedRound
from goqueue.sim.loop import SimLoop, run

TAKES_S = 1.0


class Rounds:
    """Each answers with the time when it began."""

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self.began_s: list[float] = []
        self.error: TimedOut | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.shared = SharedRound(self._run, self._spawn, pause_s=pause_s)

    async def _run(self) -> float:
        began_s = asyncio.get_running_loop().time()
        self.began_s.append(began_s)
        await asyncio.sleep(TAKES_S)
        if self.error is not None:
            raise self.error
        return began_s

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]


def test_who_comes_while_a_round_is_under_way_waits_for_the_next_and_shares_it() -> None:
    async def scenario(loop: SimLoop) -> None:
        rounds = Rounds()
        first = asyncio.ensure_future(rounds.shared.ask())
        await asyncio.sleep(TAKES_S / 2)
        late = [asyncio.ensure_future(rounds.shared.ask()) for _ in range(20)]
        assert await first == 0.0
        assert set(await asyncio.gather(*late)) == {TAKES_S}
        assert rounds.began_s == [0.0, TAKES_S]

    run(scenario, seed=1)


def test_all_who_share_a_round_hear_why_it_failed() -> None:
    async def scenario(loop: SimLoop) -> None:
        rounds = Rounds()
        rounds.error = TimedOut("nobody says")
        found = await asyncio.gather(*(rounds.shared.ask() for _ in range(3)), return_exceptions=True)
        assert found == [rounds.error] * 3
        rounds.error = None
        assert await rounds.shared.ask() == TAKES_S

    run(scenario, seed=1)


def test_who_goes_away_takes_the_answer_from_nobody() -> None:
    async def scenario(loop: SimLoop) -> None:
        rounds = Rounds()
        goes, stays = (asyncio.ensure_future(rounds.shared.ask()) for _ in range(2))
        await asyncio.sleep(TAKES_S / 2)
        goes.cancel()
        assert await stays == 0.0

    run(scenario, seed=1)


def test_there_is_a_pause_between_two_rounds() -> None:
    async def scenario(loop: SimLoop) -> None:
        rounds = Rounds(pause_s=3 * TAKES_S)
        await rounds.shared.ask()
        assert await rounds.shared.ask() == 3 * TAKES_S

    run(scenario, seed=1)


def test_nobody_waits_for_a_round_that_was_given_up() -> None:
    async def scenario(loop: SimLoop) -> None:
        rounds = Rounds()
        asking = asyncio.ensure_future(rounds.shared.ask())
        await asyncio.sleep(TAKES_S / 2)
        rounds.tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run(scenario, seed=1)
