"""Records that are moved to partitions which other nodes lead."""

from __future__ import annotations

from goqueue.core.lease.events import Target
from goqueue.node.queue.exchange import APPEND, APPENDS_TOLD, AppendCall
from goqueue.peer.asking import Asking


class RemoteAppends:
    """What `goqueue.node.queue.ports.RemoteAppends` promises. Not Kafka's Produce: that refuses batches with gaps where
    records are gone, and DescribeProducers does not say what is committed."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def append(
        self, node: str, target: Target, producer: tuple[int, int], batch: bytes | None
    ) -> int | None:
        call = AppendCall(*target, *producer, batch)
        return (await self._asking.ask(node, APPEND, call, APPENDS_TOLD)).newest_sequence
