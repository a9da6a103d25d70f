"""Reading a topic over REST: to its end, or on and on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.client.rest import ApiError, Message, RestClient, Unreachable

_PAGE_COUNT = 1_000
_WAIT_MS = 30_000
_LOOK_S = 0.5  # a signal that comes just before a wait without an end does not end it
_PAGES_AHEAD = 16  # what is read but not printed yet stays bounded: readers wait for the printer


class Start(NamedTuple):
    """Where reading one partition begins: an offset, or else an instant. `end` is its high watermark."""

    partition: int
    offset: int | None
    timestamp: str | None
    end: int


class Stretch(NamedTuple):
    partition: int
    messages: list[Message]


def read_to_end(
    client: RestClient, topic: str, starts: list[Start], *, to_timestamp: str | None
) -> Iterator[Stretch]:
    """One partition after the other, up to where each ended when reading began."""
    for start in starts:
        offset, timestamp = start.offset, start.timestamp
        while offset is None or offset < start.end:
            page = client.read(
                topic,
                start.partition,
                offset=offset,
                timestamp=timestamp,
                to_offset=start.end,
                to_timestamp=to_timestamp,
                limit=_PAGE_COUNT,
            )
            if page.messages:
                yield Stretch(start.partition, page.messages)
            elif page.next_offset == offset:  # nothing more for now; a page of aborted records moves on
                break
            offset, timestamp = page.next_offset, None


def follow(url: str, topic: str, starts: list[Start]) -> Iterator[Stretch]:
    """All partitions as their messages arrive, until the caller stops asking or a reader fails."""
    arrived: queue.Queue[Stretch | ApiError | Unreachable] = queue.Queue(_PAGES_AHEAD)
    for start in starts:
        # Daemons, because a long poll cannot be interrupted and must not hold up the end of the program.
        threading.Thread(target=_follow_one, args=(url, topic, start, arrived), daemon=True).start()
    while True:
        try:
            item = arrived.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        if not isinstance(item, Stretch):
            raise item
        yield item


def _follow_one(
    url: str, topic: str, start: Start, arrived: queue.Queue[Stretch | ApiError | Unreachable]
) -> None:
    offset, timestamp = start.offset, start.timestamp
    try:
        with RestClient(url) as client:
            while True:
                page = client.read(
                    topic,
                    start.partition,
                    offset=offset,
                    timestamp=timestamp,
                    limit=_PAGE_COUNT,
                    wait_ms=_WAIT_MS,
                )
                if page.messages:
                    arrived.put(Stretch(start.partition, page.messages))
                offset, timestamp = page.next_offset, None
    except (ApiError, Unreachable) as error:
        arrived.put(error)
