"""The transactions of a log as recovery finds them: what its checkpoint knew, and every batch behind that."""

from __future__ import annotations

import msgspec

from goqueue.log.aborted import Aborted, TransactionWalk
from goqueue.log.batch import BatchHeader

_PRODUCER_ID_AT, _TRANSACTION_AT = 0, 4  # in a producer's entry, docs/format/checkpoint.md


class OpenTransactions:
    """The `Owner` of a log that is only read."""

    def __init__(self) -> None:
        self._walk = TransactionWalk()

    @property
    def first_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return min(self._walk.open.values(), default=None)

    def restore(self, state: msgspec.Raw | None) -> None:
        self._walk = TransactionWalk()
        table = None if state is None else msgspec.json.decode(state)
        if isinstance(table, dict):  # before there were transactions it was a list
            entries = [(entry[_TRANSACTION_AT], entry[_PRODUCER_ID_AT]) for entry in table["producers"]]
            began = sorted(entry for entry in entries if entry[0] is not None)
            self._walk.open = {producer_id: first for first, producer_id in began}

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        count = len(self._walk.aborted)
        self._walk.note(header, data)
        if len(self._walk.aborted) == count:
            return None
        return self._walk.aborted.overlapping(header.base_offset, header.end_offset)[-1]

    def snapshot(self) -> msgspec.Raw:
        return producer_table(self._walk.open)


def producer_table(open: dict[int, int]) -> msgspec.Raw:
    """Producers with open transactions, and nothing else, as a checkpoint has them."""
    entries = [[producer_id, 0, 0, [], first, -1] for producer_id, first in open.items()]
    return msgspec.Raw(msgspec.json.encode({"producers": entries}))
