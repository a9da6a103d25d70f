"""Connections to one node that are free: kept for the next request, a few of them and not for long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from goqueue.peer.http import HttpLink

IDLE_S_MAX: Final = (
    20.0  # less than the other side keeps a connection, which may not close it under a request
)


class KeptLinks:
    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._links: deque[tuple[float, HttpLink]] = deque()  # and since when

    def __len__(self) -> int:
        return len(self._links)

    def take(self) -> HttpLink | None:
        """The one used last; those that were not used for long are given up."""
        oldest_s = asyncio.get_running_loop().time() - IDLE_S_MAX
        while self._links and (self._links[0][0] < oldest_s or not self._links[0][1].is_usable):
            self._links.popleft()[1].abort()
        while self._links:
            link = self._links.pop()[1]
            if link.is_usable:
                return link
            link.abort()
        return None

    def keep(self, link: HttpLink) -> None:
        if link.is_usable and len(self._links) < self._count_max:
            self._links.append((asyncio.get_running_loop().time(), link))
        else:
            link.abort()

    def close(self) -> None:
        """None is kept from now on."""
        while self._links:
            self._links.popleft()[1].abort()
        self._count_max = 0
