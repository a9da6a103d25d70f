"""The shards of an internal topic that this node has: one for each partition that it leads, or all if it is alone.

In a cluster a shard begins when this node begins to lead the partition. It is read from the log before anybody gets at it,
each by a task of its own, again and again if it cannot be read. It ends with the leadership, and for good: should this
node lead again, another one begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from goqueue.model.cluster_errors import CoordinatorLoading, NotCoordinator
from goqueue.model.errors import GoQueueError
from goqueue.node.commit import Spawn

logger = logging.getLogger(__name__)
_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 10.0
_WAIT_S: Final = 5.0  # less than any client waits for an answer


class Shard(Protocol):
    async def load(self) -> None:
        """Read it from the log, which is committed to its end when this returns."""

    def end(self, error: GoQueueError) -> None:
        """Never write and never answer again, but for this error."""


S = TypeVar("S", bound=Shard)


class LedShards(Generic[S]):
    """`make` is called when this node has begun to lead; `when_loaded` and `when_ended` may not wait."""

    def __init__(
        self,
        topic: str,
        make: Callable[[int], S],
        spawn: Spawn,
        when_loaded: Callable[[int, S], None],
        when_ended: Callable[[int, S], None],
    ) -> None:
        self._topic = topic
        self._make = make
        self._spawn = spawn
        self._when_loaded = when_loaded
        self._when_ended = when_ended
        self._loaded: dict[int, S] = {}
        self._loading: dict[int, S] = {}
        self._loads: dict[int, asyncio.Event] = {}  # set when the shard is read, or is none any more

    def all(self) -> list[S]:
        """Those that are read, by partition."""
        return [self._loaded[index] for index in sorted(self._loaded)]

    def is_loading(self) -> bool:
        return bool(self._loading)

    def has(self, index: int) -> bool:
        """Whether this node is the one to ask, be it now or in a moment."""
        return index in self._loaded or index in self._loading

    def has_loaded(self, index: int) -> bool:
        return index in self._loaded

    async def wait(self, index: int) -> None:
        """For a shard that is being read, which mostly takes a moment. Some clients do not say again what they were told to say
        later: that they leave, above all."""
        load = self._loads.get(index)
        if load is not None:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await load.wait()
            except TimeoutError:
                pass

    def find(self, index: int) -> S:
        shard = self._loaded.get(index)
        if shard is not None:
            return shard
        if index in self._loading:
            raise CoordinatorLoading(
                f"{self._topic}-{index} is being read from its log; try again", partition=index
            )
        raise NotCoordinator(
            f"this node does not coordinate what belongs to {self._topic}-{index}; ask which one does",
            partition=index,
        )

    def put(self, index: int, shard: S) -> None:
        """Of a node alone, which reads them itself."""
        self._loaded[index] = shard

    def note(self, topic: str, index: int, is_leading: bool) -> None:
        """A watcher of what this node leads."""
        if topic != self._topic:
            return
        self._end(index)
        if is_leading:
            shard = self._loading[index] = self._make(index)
            self._loads[index] = asyncio.Event()
            self._spawn(self._load(index, shard))

    def _end(self, index: int) -> None:
        self._tell_waiting(index)
        shard = self._loaded.pop(index, None) or self._loading.pop(index, None)
        if shard is not None:
            shard.end(
                NotCoordinator(
                    f"this node leads {self._topic}-{index} no longer, or anew; ask which one does",
                    partition=index,
                )
            )
            self._when_ended(index, shard)

    async def _load(self, index: int, shard: S) -> None:
        delay_s = _RETRY_S_MIN
        while self._loading.get(index) is shard:
            try:
                await shard.load()
                break
            except (
                NotCoordinator
            ) as error:  # it leads no longer, which it will hear, or hands over and may yet go on
                logger.info(
                    "an internal log is not read for now topic=%s partition=%d error=%r",
                    *(self._topic, index, error.sentence),
                )
            except GoQueueError as error:
                logger.error(
                    "an internal log cannot be read topic=%s partition=%d retry_s=%g error=%r",
                    *(self._topic, index, delay_s, error.sentence),
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RETRY_S_MAX)
        if self._loading.get(index) is shard:
            del self._loading[index]
            self._loaded[index] = shard
            self._when_loaded(index, shard)
            self._tell_waiting(index)

    def _tell_waiting(self, index: int) -> None:
        load = self._loads.pop(index, None)
        if load is not None:
            load.set()
