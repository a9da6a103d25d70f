"""One connection: the order of answers, what it holds, and how it ends. On both event loops, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import pytest
from tests.support.kafka_sockets import (
    LOOPS,
    answer_of,
    leave,
    listening,
    next_frame,
    next_id,
    request,
    run_on,
    settle,
    texts,
    until,
)

from goqueue.api.kafka.call import Answer, Call, Later, NoAnswer, begun
from goqueue.api.kafka.connection import WAITING_COUNT_MAX
from goqueue.model.errors import InvariantViolation
from goqueue.wire.schema import api_key

GROUPS = "delete_groups"
pytestmark = pytest.mark.parametrize("loop", LOOPS)


def asked(request: Any) -> str:
    return str(request.groups_names[0])


async def echo(call: Call, request: Any) -> Answer:
    return answer_of(asked(request))


class Stage:
    """Plays DeleteGroups: what is asked decides how it is answered, and when."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.changed = asyncio.Event()
        self._events: dict[str, asyncio.Event] = {}

    def event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    async def handle(self, call: Call, request: Any) -> Answer:
        name = asked(request)
        self.begun.append(name)
        self.changed.set()
        match name.split(":"):
            case ["later", _]:
                return Later(self._answer(name))
            case ["task", *_]:
                return begun(self._task(name))
            case ["wait", _]:
                return await self._answer(name)
            case ["silent", _]:
                return NoAnswer()
            case ["steps", count, _]:
                return Later(self._after(int(count), name))
            case ["large", count]:
                return answer_of("x" * int(count))
            case ["fails", _]:
                raise ValueError("a bug")
            case ["breaks", _]:
                raise InvariantViolation("cannot be")
            case ["cancels", _]:
                raise asyncio.CancelledError
        return answer_of(name)

    async def _answer(self, name: str) -> Answer:
        try:
            await self.event(name).wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            self.changed.set()
            raise
        return answer_of(name)

    async def _task(self, name: str) -> Answer:
        self.started.append(name)
        self.changed.set()
        try:
            return await self._answer(name)
        except asyncio.CancelledError:
            if name.endswith(":breaks"):
                raise InvariantViolation("cannot be") from None
            raise

    async def _after(self, step_count: int, name: str) -> Answer:
        for _ in range(step_count):
            await asyncio.sleep(0)
        return answer_of(name)

    async def until(self, what: list[str], count: int) -> None:
        while len(what) < count:
            self.changed.clear()
            await self.changed.wait()


def test_answers_come_in_the_order_of_the_requests(loop: str) -> None:
    """Whatever is ready first."""

    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            names = ["later:0", "later:1", "now:2", "silent:3", "later:4", "now:5"]
            for id, name in enumerate(names):
                client[1].write(request(GROUPS, id, texts(name)))
            await stage.until(stage.begun, 3)
            assert stage.begun == names[:3]  # what is ready waits for those before it, and the rest for that
            for name in reversed(names):
                stage.event(name).set()
            assert [await next_id(client) for _ in range(5)] == [0, 1, 2, 4, 5]
            await leave(client)

    run_on(loop, main())


def test_work_begins_whatever_those_before_it_wait_for(loop: str) -> None:
    """Where it is more than waiting. The answers still come in order."""

    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            names = ["task:0", "later:1", "task:2"]
            for id, name in enumerate(names):
                client[1].write(request(GROUPS, id, texts(name)))
            await stage.until(stage.started, 2)
            assert stage.started == ["task:0", "task:2"]
            for name in reversed(names):
                stage.event(name).set()
            assert [await next_id(client) for _ in range(3)] == [0, 1, 2]
            await leave(client)

    run_on(loop, main())


def test_work_that_runs_ends_with_its_connection_and_before_it_is_gone(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            names = ["task:0", "task:1", "later:2", "task:3:breaks"]
            for id, name in enumerate(names):
                client[1].write(request(GROUPS, id, texts(name)))
            await stage.until(stage.started, 3)
            await leave(client)
            await listener.gone()
            assert sorted(stage.cancelled) == ["task:0", "task:1", "task:3:breaks"]
            assert [str(error) for error in listener.broken] == ["cannot be"]

    run_on(loop, main())


def test_no_answer_is_lost_that_comes_as_the_last_one_before_it_goes(loop: str) -> None:
    """Requests that come at every step of the loop after an answer, so that some come just as nothing is left to send."""

    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            for id in range(400):
                client[1].write(request(GROUPS, id, texts(f"steps:{id % 3}:{id}")))
                for _ in range(id % 11):
                    await asyncio.sleep(0)
            async with asyncio.timeout(20):
                assert [await next_id(client) for _ in range(400)] == list(range(400))
            await leave(client)

    run_on(loop, main())


def test_answers_under_way_are_bounded(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            count = WAITING_COUNT_MAX * 3
            for id in range(count):
                client[1].write(request(GROUPS, id, texts(f"later:{id}")))
            await stage.until(stage.begun, WAITING_COUNT_MAX)
            await settle()
            assert len(stage.begun) == WAITING_COUNT_MAX
            for id in range(count):
                stage.event(f"later:{id}").set()
            assert [await next_id(client) for _ in range(count)] == list(range(count))
            await leave(client)

    run_on(loop, main())


def test_client_that_does_not_read_makes_the_broker_stop_reading(loop: str) -> None:
    """No more than what the sockets hold and one answer more is made for it; nothing is lost when it reads again."""

    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            reader, writer = await listener.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # typed as a write transport
            size, count = 30_000, 2_000
            for id in range(count):
                writer.write(request(GROUPS, id, texts(f"large:{size}")))
            [connection] = listener.server._connections
            await until(lambda: not connection._can_write.is_set())
            await settle()
            begun = len(stage.begun)
            assert begun < count
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 64 * 1024 + 2 * size
            assert not connection._is_reading
            await settle()
            assert len(stage.begun) == begun
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            assert [await next_id((reader, writer)) for _ in range(count)] == list(range(count))
            await leave((reader, writer))

    run_on(loop, main())


def test_requests_that_wait_are_bounded(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            reader, writer = await listener.connect()
            padding = [f"{'x' * 10_000}" for _ in range(100)]
            writer.write(request(GROUPS, 0, texts("wait:0")))
            for id in range(1, 41):
                writer.write(request(GROUPS, id, texts("now", *padding[:90])))
            await stage.until(stage.begun, 1)
            [connection] = listener.server._connections
            await until(lambda: not connection._is_reading)
            assert connection._waiting_bytes < 10 * 1024 * 1024
            stage.event("wait:0").set()
            assert [await next_id((reader, writer)) for _ in range(41)] == list(range(41))
            await leave((reader, writer))

    run_on(loop, main())


def test_largest_frame_is_served_and_a_larger_one_ends_the_connection(loop: str) -> None:
    async def main() -> None:
        async with listening(delete_groups=echo, frame_bytes_max=100_000) as listener:
            client = await listener.connect()
            head = len(request(GROUPS, 1, texts("a", ""))) - 4
            body = texts("a", *["x" * 30_000] * 3, "x" * (100_000 - head - 3 * 30_002))
            assert len(request(GROUPS, 1, body)) == 100_004
            client[1].write(request(GROUPS, 1, body))
            assert await next_id(client) == 1
            client[1].write(request(GROUPS, 2, texts("b")) + struct.pack(">i", 100_001))
            assert await next_id(client) == 2  # what came before it is answered
            assert await next_id(client) is None
            await leave(client)

    run_on(loop, main())


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        request("fetch", 9),
        request(GROUPS, 9, b"\x00"),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, api_key(GROUPS), 0, 1, 500),
    ],
    ids=["negative", "empty", "unknown", "malformed", "no header", "client id"],
)
def test_nonsense_ends_the_connection_after_the_answers_before_it(loop: str, bad: bytes) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            client[1].write(request(GROUPS, 1, texts("later:1")) + bad + request(GROUPS, 2, texts("now")))
            await stage.until(stage.begun, 1)
            await settle()
            stage.event("later:1").set()
            assert await next_id(client) == 1
            assert await next_id(client) is None
            assert stage.begun == ["later:1"]
            await leave(client)

    run_on(loop, main())


def test_what_a_client_waits_for_ends_when_it_is_gone(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            for end in ("closed", "half closed", "aborted"):
                client = await listener.connect()
                client[1].write(request(GROUPS, 1, texts(f"wait:{end}")))
                await stage.until(stage.begun, 1)
                if end == "half closed":
                    client[1].write_eof()
                    assert await next_id(client) is None
                elif end == "aborted":
                    client[1].transport.abort()
                await leave(client)
                await listener.gone()
                assert stage.cancelled == [f"wait:{end}"]
                stage.begun.clear()
                stage.cancelled.clear()

    run_on(loop, main())


def test_answers_nobody_waits_for_are_dropped_quietly(loop: str) -> None:
    """The first is under way; the others were never begun."""

    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            for id in range(5):
                client[1].write(request(GROUPS, id, texts(f"later:{id}")))
            await stage.until(stage.begun, 5)
            client[1].transport.abort()
            await listener.gone()
            await settle()
            assert stage.cancelled == ["later:0"]
            await leave(client)

    run_on(loop, main())


@pytest.mark.parametrize("is_waiting", [False, True])
def test_batches_of_a_producer_that_closes_are_still_appended(loop: str, is_waiting: bool) -> None:
    """With acks=0 a producer sends and leaves."""

    async def main() -> None:
        stage = Stage()
        appended: list[int] = []
        may_append = asyncio.Event()

        async def produce(call: Call, request: Any) -> Answer:
            await may_append.wait()
            appended.append(call.correlation_id)
            return NoAnswer() if call.correlation_id % 2 else Later(_never())

        async def _never() -> Answer:
            await asyncio.Event().wait()
            return None

        async with listening(delete_groups=stage.handle, produce=produce) as listener:
            client = await listener.connect()
            if is_waiting:
                client[1].write(request(GROUPS, 99, texts("wait:99")))
                await stage.until(stage.begun, 1)
            for id in range(20):
                client[1].write(request("produce", id, _EMPTY_PRODUCE))
                client[1].write(request(GROUPS, 100, texts("wait:100")) if id == 10 else b"")
            await client[1].drain()
            await leave(client)
            await settle()
            may_append.set()
            await listener.gone()
            assert appended == list(range(20))
            assert "wait:100" not in stage.begun

    run_on(loop, main())


def test_handler_that_fails_takes_only_its_own_connection_with_it(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            other, client = await listener.connect(), await listener.connect()
            client[1].write(request(GROUPS, 1, texts("fails:1")))
            assert await next_id(client) is None
            other[1].write(request(GROUPS, 2, texts("now")))
            assert await next_id(other) == 2
            assert not listener.broken
            await leave(client)
            await leave(other)

    run_on(loop, main())
    assert [record.levelno for record in caplog.records if record.levelno >= logging.ERROR] == [logging.ERROR]


def test_broken_invariant_is_told_to_the_node(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            client[1].write(request(GROUPS, 1, texts("breaks:1")))
            assert await next_id(client) is None
            assert [str(error) for error in listener.broken] == ["cannot be"]
            await leave(client)

    run_on(loop, main())


def test_request_whose_work_was_cancelled_ends_its_connection(loop: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with listening(delete_groups=stage.handle) as listener:
            client = await listener.connect()
            client[1].write(request(GROUPS, 1, texts("cancels:1")))
            assert await next_id(client) is None
            await leave(client)

    run_on(loop, main())


def test_half_a_frame_then_the_end(loop: str) -> None:
    async def main() -> None:
        async with listening(delete_groups=echo) as listener:
            for cut in (1, 3, 4, 10, 20):
                client = await listener.connect()
                client[1].write(request(GROUPS, 1, texts("hello"))[:cut])
                client[1].write_eof()
                assert await next_frame(client) is None
                await leave(client)
            await listener.gone()

    run_on(loop, main())


_EMPTY_PRODUCE = struct.pack(">hhii", -1, 1, 0, 0)
