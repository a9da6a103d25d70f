"""A query that writes numbered batches with many tasks, as Spark does (ADR 27).

Its driver begins a batch again, with other tasks and other shares, until it has heard that the batch is committed; then it may
have forgotten that and begin it once more. Tasks are tried again and run twice; those that are not waited for go on writing.
A driver that is thought dead may come back with its verdict while the next one writes the same batch.
"""

from __future__ import annotations

import asyncio
from typing import Any

from goqueue.sim.kafka.asking import ask
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.history import JointBatch, Judged, Outcome, Part, Row, Verdict, now_s
from goqueue.sim.kafka.joint_tasks import Finished, Lost, Result, write_share
from goqueue.sim.kafka.world import World, pause

_ABORTABLE = 120
_EXECUTOR_COUNT = 2


class JointDriver:
    def __init__(self, world: World, name: str, parts: list[Part]) -> None:
        self._world = world
        self._history = world.history
        self._rng = world.child()
        self._name = name
        self._parts = parts
        self._task_count = 0
        self._left: list[asyncio.Task[Any]] = []  # tasks and verdicts of whatever result

    async def run(self, batch_count: int) -> None:
        try:
            for batch in range(batch_count):
                await asyncio.sleep(self._rng.expovariate(4))
                of = JointBatch(self._name, batch)
                self._history.rows[of] = self._rng.randint(1, 5)
                while not await self._attempt(of):
                    await pause(self._rng)
                if self._is_unlucky(0.2):
                    await self._attempt(of)
        finally:
            for task in self._left:
                task.cancel()
            for ended in await asyncio.gather(*self._left, return_exceptions=True):
                if isinstance(ended, Exception):
                    self._history.violate(f"something of {self._name} broke off: {ended!r}")

    def _is_unlucky(self, rate: float) -> bool:
        return not self._world.is_calm and self._rng.random() < rate

    async def _attempt(self, of: JointBatch) -> bool:
        """The whole batch, by tasks of its own; whether it is known to be committed."""
        rows = [Row(of, number) for number in range(self._history.rows[of])]
        self._rng.shuffle(rows)
        count = self._rng.randint(1, min(3, len(rows)))
        results = await asyncio.gather(*(self._share(index, rows[index::count]) for index in range(count)))
        winners = [one for one in results if isinstance(one, Finished)]
        return await self._end(of, winners)

    async def _share(self, index: int, rows: list[Row]) -> Result:
        """Until one task gets through; its twin, if it has one, is killed or goes on."""
        while True:
            tasks = [self._start(index, rows) for _ in range(2 if self._is_unlucky(0.4) else 1)]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task in pending and self._rng.random() < 0.3:
                    task.cancel()
            for task in tasks:
                if task in done and not isinstance(task.result(), Lost):
                    return task.result()
            await pause(self._rng)

    def _start(self, index: int, rows: list[Row]) -> asyncio.Task[Result]:
        self._task_count += 1
        name = f"{self._name}.{self._task_count}"
        member = f"{index}" if self._rng.random() < 0.3 else f"{index}-{self._task_count}"
        host = f"{self._name}-executor{self._task_count % _EXECUTOR_COUNT}"
        task = self._world.start(host, write_share(self._world, name, member, rows, self._parts))
        self._left.append(task)
        return task

    async def _end(self, of: JointBatch, winners: list[Finished]) -> bool:
        how = 1.0 if self._world.is_calm else self._rng.random()
        if how < 0.08:  # the driver dies before it says anything
            return False
        if how < 0.16:
            return await self._abort(of)
        if how < 0.26:  # thought dead, it says what it has to say when its successor is at work
            self._left.append(asyncio.ensure_future(self._commit_late(of, winners)))
            return False
        if how < 0.4:
            return await self._commit_and_die(of, winners)
        return await self._commit(of, winners)

    async def _commit_late(self, of: JointBatch, winners: list[Finished]) -> None:
        await asyncio.sleep(self._rng.uniform(0.05, 2.0))
        await self._commit(of, winners)

    async def _commit_and_die(self, of: JointBatch, winners: list[Finished]) -> bool:
        """The answer comes too late: whether the batch is committed is not known."""
        try:
            async with asyncio.timeout(self._rng.uniform(0.001, 0.03)):
                return await self._commit(of, winners)
        except TimeoutError:
            return False

    async def _commit(self, of: JointBatch, winners: list[Finished]) -> bool:
        verdict = Verdict(of, [winner.txn for winner in winners], now_s())
        self._history.verdicts.append(verdict)
        for txn in verdict.winners:
            txn.commit_asked_s = min(txn.commit_asked_s, now_s())
        answer = await self._ask(of, winners, is_commit=True)
        verdict.answered_s = now_s()
        if answer.error_code:
            verdict.judged = Judged.REFUSED
        else:
            verdict.judged = Judged.BEFORE if answer.was_committed else Judged.COMMITTED
        if verdict.judged is Judged.COMMITTED:
            for txn in verdict.winners:
                txn.outcome, txn.answered_s = Outcome.COMMITTED, now_s()
        return verdict.is_heard

    async def _abort(self, of: JointBatch) -> bool:
        """A driver that gives up may hear that another has committed what it gives up."""
        asked_s = now_s()
        answer = await self._ask(of, [], is_commit=False)
        if answer.was_committed:
            self._history.verdicts.append(Verdict(of, [], asked_s, now_s(), Judged.BEFORE))
        return bool(answer.was_committed)

    async def _ask(self, of: JointBatch, winners: list[Finished], *, is_commit: bool) -> Any:
        """EndJoint, of which only a lost winner is a refusal that may come."""
        client: KafkaClient = self._world.client(self._name)
        kinds = requests("end_joint")
        try:
            answer = await ask(
                client,
                self._rng,
                "end_joint",
                0,
                joint_id=of.joint,
                batch_id=of.batch,
                is_commit=is_commit,
                winners=[
                    kinds.Winner(
                        transactional_id=one.transactional_id,
                        producer_id=one.producer.producer_id,
                        producer_epoch=one.producer.epoch,
                    )
                    for one in winners
                ],
            )
        finally:
            client.close()
        if answer.error_code not in (0, _ABORTABLE):
            self._history.violate(f"EndJoint of {of} gave {answer.error_code}: {answer.error_message}")
        return answer
