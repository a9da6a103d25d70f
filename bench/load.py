"""The load generator: raw HTTP/1.1 over kept connections, one request under way on each. A child process.

It must never be what limits a line, so a request is a template with a stamp put in, and an answer is looked at
just enough to know that it is whole and a 200. The answers' bodies go to a file, for the parent to verify.
A plan comes in as one line of JSON and a report goes out as one.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec
import uvloop
from msgspec import Struct

from bench.child import Child
from bench.line import BenchFailed, percentile

MARK = b"@@@@-@@@@@@@@@@"
_TIMEOUT_S = 120.0
_LENGTH = b"content-length: "


class Plan(Struct):
    """Until the time is up or `request_count_max` requests are sent. With a `step`, request n asks for n * step in
    the place of the mark; without, the mark becomes the connection's number and its request's."""

    port: int
    template: bytes
    connection_count: int
    bodies_path: str | None = None
    duration_s: float = 1e9
    request_count_max: int = 1 << 62
    first_connection: int = 0  # so that no two plans use a stamp twice
    first_serial: int = 0
    step: int = 0


class Answer(Struct, array_like=True, gc=False):
    connection: int
    turn: int
    body: bytes


class Report(Struct):
    request_count: int
    elapsed_s: float
    cpu_s: float
    p50_us: float
    p99_us: float
    error: str | None = None

    @property
    def rate(self) -> float:
        return self.request_count / self.elapsed_s


def stamp(connection: int, turn: int) -> bytes:
    """As long as the mark, so that a template's content-length stays right."""
    return b"%04d-%010d" % (connection, turn)


class LoadProcess(Child):
    """The parent's side."""

    def __init__(self) -> None:
        super().__init__("bench.load")

    def run(self, plan: Plan) -> Report:
        self.tell(msgspec.json.encode(plan))
        report = msgspec.json.decode(self.line(timeout_s=_TIMEOUT_S + 10), type=Report)
        if report.error is not None:
            raise BenchFailed(report.error)
        return report


def read_answers(path: Path) -> list[Answer]:
    answers = msgspec.msgpack.decode(path.read_bytes(), type=list[Answer])
    path.unlink()
    return answers


class _Run:
    """What the connections of one plan share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.answers: list[Answer] = []
        self.latencies_ns: list[int] = []
        self.error: str | None = None
        self.sent_count = 0
        self.deadline_ns = 0
        self.running_count = plan.connection_count
        self.done = asyncio.Event()
        self._head, self._mark, self._tail = plan.template.partition(MARK)
        self._is_single = MARK not in self._tail

    def next_request(self, connection: int, turn: int, now_ns: int) -> bytes | None:
        if now_ns >= self.deadline_ns or self.sent_count >= self.plan.request_count_max:
            return None
        serial = self.plan.first_serial + self.sent_count
        self.sent_count += 1
        if not self._mark:
            return self._head
        text = b"%d" % (serial * self.plan.step) if self.plan.step else stamp(connection, turn)
        if self._is_single:
            return self._head + text + self._tail
        return self.plan.template.replace(MARK, text)

    def finish(self, error: str | None = None) -> None:
        self.error = self.error or error
        self.running_count -= 1
        if error is not None or self.running_count == 0:
            self.done.set()


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run, index: int) -> None:
        self._run = run
        self._index = index
        self._turn = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = 0  # bytes of the answer; 0 while its head is not complete
        self._body_at = 0
        self._sent_ns = 0
        self._is_done = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one, for TCP
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_done:
            self._end("the server closed a connection")

    def send_next(self, now_ns: int) -> None:
        request = self._run.next_request(self._index, self._turn, now_ns)
        if request is None:
            self._end(None)
            return
        self._sent_ns = now_ns
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if not self._wanted and not self._read_head():
            return
        if self._size < self._wanted:
            return
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if self._size > self._wanted:
            self._end("more bytes came than the answer has")
            return
        now_ns = time.perf_counter_ns()
        run = self._run
        run.latencies_ns.append(now_ns - self._sent_ns)
        if run.plan.bodies_path is not None:
            run.answers.append(Answer(self._index, self._turn, whole[self._body_at :]))
        self._turn += 1
        self._pieces, self._size, self._wanted = [], 0, 0
        self.send_next(now_ns)

    def _read_head(self) -> bool:
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        data = self._pieces[0]
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        at = data.find(_LENGTH, 0, end)
        if not data.startswith(b"HTTP/1.1 200 ") or at < 0:
            self._end(f"not a success: {data[:400].decode(errors='replace')}")
            return False
        at += len(_LENGTH)
        self._body_at = end + 4
        self._wanted = self._body_at + int(data[at : data.index(b"\r", at)])
        return True

    def _end(self, error: str | None) -> None:
        if not self._is_done:
            self._is_done = True
            self._run.finish(error)
            self._transport.close()


async def run_plan(plan: Plan) -> Report:
    loop = asyncio.get_running_loop()
    run = _Run(plan)
    connections = [
        (await loop.create_connection(lambda index=index: _Connection(run, index), "127.0.0.1", plan.port))[1]  # type: ignore[misc]  # mypy has no type for the bound index
        for index in range(plan.first_connection, plan.first_connection + plan.connection_count)
    ]
    used = _cpu_s()
    started = time.perf_counter_ns()
    run.deadline_ns = started + int(plan.duration_s * 1e9)
    for connection in connections:
        connection.send_next(time.perf_counter_ns())
    async with asyncio.timeout(_TIMEOUT_S):
        await run.done.wait()
    elapsed_s = (time.perf_counter_ns() - started) / 1e9
    used = _cpu_s() - used
    if plan.bodies_path is not None:
        _save(run.answers, plan.bodies_path)
    ordered = sorted(run.latencies_ns) or [0]
    return Report(
        len(run.latencies_ns),
        elapsed_s,
        used,
        percentile(ordered, 0.5) / 1_000,
        percentile(ordered, 0.99) / 1_000,
        run.error,
    )


def _save(answers: list[Answer], path: str) -> None:
    Path(path).write_bytes(msgspec.msgpack.encode(answers))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            report = runner.run(run_plan(msgspec.json.decode(line, type=Plan)))
            print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
