"""Polls of one group that wait for something to come to one partition.

A thousand workers may wait for one message. So news wakes one of them, the first in line, and who was woken has them look
again once it has taken what it wants: then the next is woken if anything is left.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from goqueue.core.lease.window import Window
from goqueue.node.clock import Clock
from goqueue.node.parking import Parked
from goqueue.node.partition import Partition
from goqueue.node.queue.feed import Feed


class WaitingLedger(Protocol):
    source: Partition

    def feed(self, window: Window) -> Feed: ...


class Waiting:
    def __init__(self, ledger: WaitingLedger, window: Window, clock: Clock) -> None:
        self._ledger = ledger
        self._window = window
        self._clock = clock
        self._line: dict[asyncio.Future[None], None] = {}
        self._parked: Parked | None = None  # at the partition, for all of them
        self._timer: asyncio.TimerHandle | None = None  # of what comes back

    def add(self, future: asyncio.Future[None]) -> None:
        """Until it is woken or goes away."""
        self._line[future] = None
        self.look()

    def discard(self, future: asyncio.Future[None]) -> None:
        self._line.pop(future, None)
        if not self._line:
            self._disarm()

    def look_for_keys(self) -> None:
        """Records were finished: others may have waited for them."""
        if self._window.has_keys:
            self.look()

    def look(self) -> None:
        """Wake the first in line if there may be something for it, or see to it that this is done when there is."""
        self._disarm()
        if not self._line:
            return
        feed, now_ms = self._ledger.feed(self._window), self._clock.now_ms()
        is_new = self._window.gives_new and (feed.bound > feed.end or feed.has_records)
        if is_new or self._window.is_any_ready(now_ms):
            self._wake_first()
            return
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        news.add_done_callback(self._on_news)
        self._parked = self._ledger.source.park(news, feed.end, committed=True)
        ready_ms = self._window.next_ready_ms()
        if ready_ms is not None:
            self._timer = loop.call_later(max(ready_ms - now_ms, 1) / 1_000, self.look)

    def wake_all(self) -> None:
        """The group is gone or was sent elsewhere, the topic is deleted or the node stops."""
        self._disarm()
        line, self._line = self._line, {}
        for future in line:
            wake(future)

    def _on_news(self, news: asyncio.Future[None]) -> None:
        if self._parked is not None and self._parked.future is news:
            self._parked = None
            self._wake_first()  # whatever it is: the topic may be deleted

    def _wake_first(self) -> None:
        while self._line:
            future = next(iter(self._line))
            del self._line[future]
            if not future.done():
                future.set_result(None)
                return

    def _disarm(self) -> None:
        if self._parked is not None:
            self._ledger.source.unpark(self._parked)
            self._parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Finishing:
    """Who waits for anything to be finished, since it holds as many records as it may."""

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    def add(self, future: asyncio.Future[None]) -> None:
        self._futures[future] = None

    def discard(self, future: asyncio.Future[None]) -> None:
        self._futures.pop(future, None)

    def wake_all(self) -> None:
        for future in self._futures:
            wake(future)


def wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
