"""A state machine over the log that owns it, for machines that decide without changing.

`state` is asked and, through `write`, changed without an await in between: that is all the locking there is. A write that
fails leaves the state as the log has it. Nobody hears of anything before it is durable. Once the leadership of the log has
ended, so has this: everything raises from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from goqueue.model.cluster_errors import NotCoordinator, NotLeader, ReplicationUnknown
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError
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
        self._lost: GoQueueError | None = None
        self._paused_until_ms: int | None = None

    async def open(self) -> None:
        await self._log.replay(self.state.apply)

    async def ready(self) -> None:
        """Before the first `write`. Raises once the log has failed or is another's: then the state may hold what a restart
        will not."""
        if self._lost is not None:
            raise self._lost
        with self._logged():
            await self._log.lead()

    def write(self, events: Sequence[E]) -> None:
        if self._lost is not None:
            raise self._lost
        with self._logged():
            self._log.append(events)
        for event in events:
            self.state.apply(event)

    def write_only(self, events: Sequence[E]) -> None:
        """What says again what the state holds: a snapshot."""
        with self._logged():
            self._log.append(events)

    async def settled(self, *, gives_up: bool = False) -> None:
        """Until everything that was written is durable: nobody hears before of what a crash could take back. Who `gives_up` is
        told where this node is cut off, and may ask again."""
        try:
            with self._logged():
                await self._log.settled(gives_up=gives_up)
        except ReplicationUnknown as error:
            if self._log.is_over:
                self._lost = self._lost or error
            raise
        except (CoordinatorNotAvailable, NotCoordinator, NotLeader) as error:
            self._lost = self._lost or error
            raise
        if self._lost is not None:
            raise self._lost

    def end(self, error: GoQueueError) -> None:
        """It is another's by now: whatever is still under way here hears this."""
        self._lost = error

    def next_tick_ms(self) -> int | None:
        at_ms = self.state.next_tick_ms()
        if at_ms is None or self._paused_until_ms is None:
            return at_ms
        return max(at_ms, self._paused_until_ms)

    def pause(self, now_ms: int) -> None:
        """What is due could not be written; not again at once."""
        self._paused_until_ms = now_ms + _PAUSE_MS

    def _logged(self) -> AbstractContextManager[None]:
        """How the troubles of the log look to whoever asks."""
        return available(self._name)
