"""The key that receipts are signed with: made once, when the first receipt is wanted, and kept with the metadata, so that
receipts outlive restarts."""

from __future__ import annotations

from goqueue.core.catalog import MakeReceiptKey
from goqueue.node.changes import Changes
from goqueue.node.ids import Ids
from goqueue.node.metadata import Metadata
from goqueue.node.queue.receipts import Receipts


class ReceiptKey:
    def __init__(self, metadata: Metadata, changes: Changes, ids: Ids) -> None:
        self._metadata = metadata
        self._changes = changes
        self._ids = ids
        self._receipts: Receipts | None = None

    async def receipts(self) -> Receipts:
        if self._receipts is None:
            if self._metadata.catalog.receipt_key is None:
                command = MakeReceiptKey(f"{self._ids.fresh()}{self._ids.fresh()}".replace("-", ""))
                await self._changes.run("receipt key", lambda: self._metadata.execute(command))
            key = self._metadata.catalog.receipt_key or ""
            self._receipts = Receipts(key.encode()[:64])
        return self._receipts
