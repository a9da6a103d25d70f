"""One client's connection. Requests are begun one after another, in the order they came, and answered in that order.

Only what a handler gives back as `Later` overlaps with what follows it (a produce that waits for the disk, what another node
asks for). Reading stops while a client has as many requests waiting as it may, or does not take its answers, so that no client can make
the broker hold more than a few of its frames and one large answer.

When a client is gone, what it waits for ends. Only the batches that it has sent are still appended: a producer that
wants no answers (acks=0) sends them and closes.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from goqueue.api.kafka.call import Answer, Call, Closing, Identity, Later, NoAnswer
from goqueue.api.kafka.dispatch import Dispatch, encode_answer
from goqueue.model.errors import InvariantViolation
from goqueue.wire.codec import Malformed
from goqueue.wire.frames import Frame, FrameReader
from goqueue.wire.schema import api_key

logger = logging.getLogger(__name__)
WAITING_COUNT_MAX = 32  # frames read and not begun, and answers not sent
WAITING_BYTES_MAX = 8 * 1024 * 1024  # of frames read and not begun
LOGIN_BYTES_MAX = 64 * 1024  # of all requests before a login, where one is needed
LOGIN_S_MAX = 10.0
IDLE_S_MAX = 600.0  # Kafka's connections.max.idle.ms; clients know how to come back
_WATCH_S = 60.0
_PRODUCE = "produce"
_PRODUCE_KEY = struct.pack(">h", api_key(_PRODUCE))


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        frame_bytes_max: int,
        scratch: bytearray,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
        on_broken: Callable[[BaseException], None],
        needs_login: bool = False,
    ) -> None:
        self._dispatch = dispatch
        self._needs_login = needs_login
        self._login_bytes_left = LOGIN_BYTES_MAX
        self._login_watch: asyncio.TimerHandle | None = None
        self._frames = FrameReader(frame_bytes_max, scratch)
        self._on_made = on_made
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._transport: asyncio.Transport | None = None
        self._host = ""
        self._closing = Closing()
        self._identity = Identity()
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._worker: asyncio.Task[None] | None = None
        self._begun = ""  # the API of the request that the worker is at
        self._sender: asyncio.Task[None] | None = None
        self._answers: deque[tuple[Call, Awaitable[Answer]]] = deque()
        self._dropped: dict[asyncio.Future[Answer], None] = {}  # have yet to end
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._room = asyncio.Event()
        self._is_reading = True
        self._is_taking = True
        self._is_lost = False
        self._watch: asyncio.TimerHandle | None = None
        self._active_at = 0.0
        self._unsent_bytes = 0  # when it was last looked at

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        if not self._on_made(self):
            self.close()
            return
        loop = asyncio.get_running_loop()
        self._active_at = loop.time()
        self._watch = loop.call_later(_WATCH_S, self._end_if_idle)
        if self._needs_login:
            self._login_watch = loop.call_later(LOGIN_S_MAX, self._end_if_stranger)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_taking:
            return
        if self._needs_login and self._identity.peer is None:
            self._login_bytes_left -= nbytes
            if self._login_bytes_left < 0:
                logger.info("connection closed host=%s reason='much sent and no login'", self._host)
                self.abort()
                return
        self._active_at = asyncio.get_running_loop().time()
        for frame in self._frames.received(nbytes):
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        if self._frames.fault is not None:  # the worker refuses it after what came before
            self._is_taking = False
        if self._waiting or not self._is_taking:
            self._start_worker()
        self._adjust_reading()

    def eof_received(self) -> bool:
        """Whoever sends no more is gone, as for Apache Kafka: half closed and closed look the same from here."""
        self._let_go()
        return False

    def pause_writing(self) -> None:
        self._can_write.clear()
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._can_write.set()
        self._adjust_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._can_write.set()
        if self._watch is not None:
            self._watch.cancel()
        if self._login_watch is not None:
            self._login_watch.cancel()
        self._let_go()
        if self._sender is not None:
            self._sender.cancel()
        self._closing.run()
        self._leave_if_done()

    # the broker's side

    def close(self) -> None:
        """Take nothing more; what was answered is still sent."""
        self._is_taking = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        self._is_taking = False
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Take no new requests, and wait until those that are under way are answered."""
        self._is_taking = False
        self._waiting.clear()
        while busy := [task for task in (self._worker, self._sender) if task is not None]:
            await asyncio.wait(busy)

    # one request after another

    def _start_worker(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
            self._worker.add_done_callback(self._work_ended)

    async def _work(self) -> None:
        """Begin what waits, one at a time."""
        try:
            while self._waiting:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._adjust_reading()
                await self._begin(frame)
            if self._frames.fault is not None:
                raise Malformed(self._frames.fault)
        except Malformed as error:
            await self._refuse(str(error))
        except InvariantViolation as error:
            self._on_broken(error)
            self.abort()
        except Exception:  # the supervisor of one client: it must not take others with it
            logger.exception("request failed host=%s api=%s", self._host, self._begun)
            self.abort()

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        """Called also for one that was cancelled before it began: by who ends everything, and another one would be, too."""
        if task.cancelled() and not self._begun:
            self._waiting.clear()
        self._worker = None
        self._begun = ""
        if self._waiting:
            self._start_worker()
        elif self._is_lost:
            self._leave_if_done()
        elif task.cancelled() and self._is_taking:  # by what it waited for: its client would wait for ever
            self.abort()

    async def _begin(self, frame: Frame) -> None:
        api, call, request = self._dispatch.parse(frame, self._host, self._closing, self._identity)
        del frame  # a parked fetch must not hold on to what came
        self._begun = api.name
        answer = await api.handle(call, request)
        if isinstance(answer, Later):
            await self._send_when_ready(call, answer)
            return
        if self._sender is not None:  # those before it are not answered yet
            await asyncio.wait([self._sender])
        if not isinstance(answer, NoAnswer):
            await self._send(call, answer)

    async def _send_when_ready(self, call: Call, later: Later) -> None:
        self._answers.append((call, later.answer))
        if self._sender is None and self._is_lost:
            self._drop_answers()
        elif self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_later())
            self._sender.add_done_callback(self._send_ended)
        while len(self._answers) >= WAITING_COUNT_MAX:
            self._room.clear()
            await self._room.wait()

    async def _send_later(self) -> None:
        is_done = False
        try:
            while self._answers:
                call, answer = self._answers[0]
                try:
                    await self._send(call, await answer)
                finally:
                    self._answers.popleft()
                    self._room.set()
            is_done = True
        except InvariantViolation as error:
            self._on_broken(error)
            self.abort()
        except Exception:  # as in `_work`
            logger.exception("answer failed host=%s", self._host)
            self.abort()
        finally:
            # In the same step as the last look at what waits: an answer that comes now must find no sender.
            self._sender = None
            if not is_done:
                self._drop_answers()

    def _send_ended(self, task: asyncio.Task[None]) -> None:
        if self._sender is task:  # cancelled before it began
            self._sender = None
            self._drop_answers()
        if self._is_lost:
            self._leave_if_done()

    def _drop_answers(self) -> None:
        """Nobody wants them any more: what runs ends, and one that was never begun must be told so."""
        for _, answer in self._answers:
            if asyncio.iscoroutine(answer):
                answer.close()
            elif isinstance(answer, asyncio.Future):
                self._dropped[answer] = None
                answer.add_done_callback(self._dropped_ended)
                answer.cancel()
        self._answers.clear()
        self._room.set()

    def _dropped_ended(self, answer: asyncio.Future[Answer]) -> None:
        """A bug is not lost with the answer."""
        del self._dropped[answer]
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, InvariantViolation):
            self._on_broken(error)
        elif error is not None:
            logger.error("answer failed host=%s", self._host, exc_info=error)
        if self._is_lost:
            self._leave_if_done()

    async def _send(self, call: Call, answer: Answer) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(encode_answer(call, answer))
        self._active_at = asyncio.get_running_loop().time()
        if not self._can_write.is_set():
            await self._can_write.wait()

    def _adjust_reading(self) -> None:
        is_full = len(self._waiting) >= WAITING_COUNT_MAX or self._waiting_bytes >= WAITING_BYTES_MAX
        may_read = not is_full and self._can_write.is_set() and self._frames.fault is None
        if may_read == self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # the end

    async def _refuse(self, reason: str) -> None:
        """What came before it is answered first."""
        self._is_taking = False
        self._waiting.clear()
        if self._sender is not None:
            await asyncio.wait([self._sender])
        logger.info("connection closed host=%s reason=%r", self._host, reason)
        self.close()

    def _let_go(self) -> None:
        """The client is gone: append what it has sent, and wait for nothing else."""
        self._is_taking = False
        self._waiting = deque(frame for frame in self._waiting if frame.startswith(_PRODUCE_KEY))
        self._waiting_bytes = sum(map(len, self._waiting))
        if self._worker is not None and self._begun and self._begun != _PRODUCE:
            self._worker.cancel()

    def _leave_if_done(self) -> None:
        if self._worker is None and self._sender is None and not self._dropped:
            self._on_lost(self)

    def _end_if_stranger(self) -> None:
        if self._identity.peer is None and not self._is_lost:
            logger.info("connection closed host=%s reason='no login'", self._host)
            self.abort()

    def _end_if_idle(self) -> None:
        """A client that asks for nothing, or takes none of what it asked for, gives its place to another."""
        if self._transport is None or self._is_lost:
            return
        loop = asyncio.get_running_loop()
        unsent_bytes = self._transport.get_write_buffer_size()
        is_busy = self._worker is not None or self._sender is not None
        if (is_busy and self._can_write.is_set()) or unsent_bytes < self._unsent_bytes:
            self._active_at = loop.time()
        self._unsent_bytes = unsent_bytes
        if loop.time() - self._active_at >= IDLE_S_MAX:
            logger.info("connection closed host=%s reason='idle'", self._host)
            self.abort()
            return
        self._watch = loop.call_later(_WATCH_S, self._end_if_idle)
