"""A shard of the transaction coordinator over the log that owns it."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import Event
from goqueue.core.txn.shard import TxnShard
from goqueue.model.errors import (
    CoordinatorNotAvailable,
)
from goqueue.node.state_log import StateLog, available

_NAME = "transaction coordinator"
_PAUSE_MS = 1_000  # between attempts to write what a deadline brought


class OwnedShard:
    """`state` is asked and, through `write`, changed without an await in between: that is all the locking there is.
    Deciding changes nothing, so a write that fails leaves the state as the log has it."""

    def __init__(self, log: StateLog[Event], config: TxnConfig) -> None:
        self.state = TxnShard(config)
        self._log = log
        self._lost: CoordinatorNotAvailable | None = None
        self._paused_until_ms: int | None = None

    async def open(self) -> None:
        await self._log.replay(self.state.apply)

    async def ready(self) -> None:
        """Before the first `write`. Raises once the log has failed: then the state may hold what a restart will not."""
        if self._lost is not None:
            raise self._lost
        with available(_NAME):
            await self._log.lead()

    def write(self, events: Sequence[Event]) -> None:
        with available(_NAME):
            self._log.append(events)
        for event in events:
            self.state.apply(event)

    async def settled(self) -> None:
        """Until everything that was written is durable: nobody hears before of what a crash could take back."""
        try:
            with available(_NAME):
                await self._log.settled()
        except CoordinatorNotAvailable as error:
            self._lost = error
            raise

    def next_tick_ms(self) -> int | None:
        at_ms = self.state.next_tick_ms()
        if at_ms is None or self._paused_until_ms is None:
            return at_ms
        return max(at_ms, self._paused_until_ms)

    def pause(self, now_ms: int) -> None:
        """What is due could not be written; not again at once."""
        self._paused_until_ms = now_ms + _PAUSE_MS
