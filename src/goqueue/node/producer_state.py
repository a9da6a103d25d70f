"""The producers of a partition as the owner of its log: rebuilt from its batches and markers, kept in its checkpoint."""

from __future__ import annotations

import msgspec

from goqueue.core.producer import Appended, Completed, Ended, ProducerEntry, ProducerTable, last_sequence
from goqueue.log.aborted import Aborted
from goqueue.log.batch import NO_PRODUCER, BatchHeader
from goqueue.log.control import read_marker
from goqueue.model.errors import InvalidBatch


class ProducerState:
    def __init__(self) -> None:
        self.table = ProducerTable()

    def restore(self, state: msgspec.Raw | None) -> None:
        self.table = ProducerTable()
        if state is None:
            return
        found = msgspec.json.decode(state, type=_Snapshot | list[Appended])
        if isinstance(found, _Snapshot):
            self.table = ProducerTable(found.producers, found.ended)
            return
        for event in found:  # as version 1 of the checkpoint had it
            self.table.apply(event)

    def observe(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        if header.producer_id == NO_PRODUCER:
            return None
        if header.is_control:
            return self._complete(header, data)
        self.table.apply(_appended(header))
        return None

    def _complete(self, header: BatchHeader, data: bytes | memoryview) -> Aborted | None:
        try:
            marker = read_marker(data, header)
        except InvalidBatch:
            # Sound bytes that make no sense: the transaction stays open, so that nobody reads what may be aborted.
            return None
        if marker is None:
            return None
        entry = self.table.entry(header.producer_id)
        start = entry.transaction_start if entry is not None else None
        self.table.apply(
            Completed(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                marker.is_commit,
                marker.coordinator_epoch,
                header.max_timestamp,
            )
        )
        if start is None or marker.is_commit:
            return None
        first_open = self.table.first_open_offset()
        stable = header.end_offset if first_open is None else first_open
        return Aborted(header.producer_id, start, header.last_offset, stable)

    def snapshot(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(_Snapshot(self.table.entries(), self.table.ended())))


class _Snapshot(msgspec.Struct, omit_defaults=True):
    producers: list[ProducerEntry]
    ended: list[Ended] = []


def _appended(header: BatchHeader) -> Appended:
    return Appended(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence(header.base_sequence, header.last_offset_delta + 1),
        header.base_offset,
        header.max_timestamp,
        header.is_transactional,
    )
