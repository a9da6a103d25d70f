"""Parts of batches whose home another node leads."""

from __future__ import annotations

from goqueue.node.queue.exchange import HELD, HELD_TOLD, PART, PARTS_TOLD, SILENCE, SILENCES
from goqueue.node.scaling.ports import Held, HeldCall, Part, Silence, SilenceCall
from goqueue.peer.asking import Asking


class RemoteParts:
    """What `goqueue.node.scaling.ports.RemoteParts` promises."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def send(self, node: str, part: Part) -> int:
        return (await self._asking.ask(node, PART, part, PARTS_TOLD)).offset

    async def silence(self, node: str, call: SilenceCall) -> Silence:
        return await self._asking.ask(node, SILENCE, call, SILENCES)

    async def held(self, node: str, call: HeldCall) -> Held:
        return await self._asking.ask(node, HELD, call, HELD_TOLD)
