"""A state machine over the log that owns it, for machines that decide without changing.

`state` is asked and, through `write`, changed without an await in between: that is all the locking there is. A write that
fails leaves the state as the log has it. Nobody hears of anything before it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.node.state_log import StateLog, available

_PAUSE_MS = 1_000  # between attempts to write what a deadline brought

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Machine(Protocol[E_contra]):
    def apply(self, event: E_contra) -> None: ...

    def next_tick_ms(self) -> int | None: ...


M = TypeVar("M", bound=Machine)  # type: ignore[type-arg]  # of the events of its log


class OwnedState(Generic[M, E]):
    def __init__(self, name: str, log: StateLog[E], state: M) -> None:
        self.state = state
        self._name = name
        self._log = log
        self._lost: CoordinatorNotAvailable | None = None
        self._paused_until_ms: int | None = None

    async def open(self) -> None:
        await self._log.replay(self.state.apply)

    async def ready(self) -> None:
        """Before the first `write`. Raises once the log has failed: then the state may hold what a restart will not."""
        if self._lost is not None:
            raise self._lost
        with available(self._name):
            await self._log.lead()

    def write(self, events: Sequence[E]) -> None:
        with available(self._name):
            self._log.append(events)
        for event in events:
            self.state.apply(event)

    def write_only(self, events: Sequence[E]) -> None:
        """What says again what the state holds: a snapshot."""
        with available(self._name):
            self._log.append(events)

    async def settled(self) -> None:
        """Until everything that was written is durable: nobody hears before of what a crash could take back."""
        try:
            with available(self._name):
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
