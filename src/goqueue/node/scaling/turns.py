"""Turns: batches of one producer in one partition, one after the other where one of them has to wait for something."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

from goqueue.log.batch import NO_PRODUCER
from goqueue.node.partition import Partition

Place = tuple[Partition, int]


class Turns:
    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    def of(self, partition: Partition, producer_id: int) -> AbstractAsyncContextManager[None]:
        """Who sends without an id has no order to keep but that of its connection."""
        if producer_id == NO_PRODUCER:
            return nullcontext()
        return self._locks.setdefault((partition, producer_id), asyncio.Lock())

    def is_free(self, partition: Partition, producer_id: int) -> bool:
        return not self._locks or (partition, producer_id) not in self._locks
