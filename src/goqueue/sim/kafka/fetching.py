"""Reading partitions from a position on, and keeping the position true.

A power cut may take the end of a log that a reader has seen, and other records come to stand at those offsets. A client
that has a new connection therefore asks where the leader epoch ended in which it read last (KIP-320).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import Records, read_records
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.history import KafkaHistory, Part, Read, now_s
from goqueue.sim.kafka.world import RETRIABLE

_BYTES_MAX = 1_000_000
OFFSET_OUT_OF_RANGE = 1


class Position(NamedTuple):
    offset: int
    leader_epoch: int = -1


class Ends(NamedTuple):
    high_watermark: int
    last_stable_offset: int


class Fetching:
    def __init__(
        self, history: KafkaHistory, client: KafkaClient, reader: str, *, is_committed: bool
    ) -> None:
        self.ends: dict[Part, Ends] = {}
        self._history = history
        self._client = client
        self._reader = reader
        self._is_committed = is_committed
        self._connection_validated = 0

    @property
    def is_validated(self) -> bool:
        """No connection was made since the positions were last held against the log."""
        return self._client.is_connected and self._connection_validated == self._client.connection_count

    async def fetch(
        self, positions: dict[Part, Position], *, wait_ms: int, bytes_max: int = _BYTES_MAX
    ) -> dict[Part, Records]:
        """What there is, and every answer told to the history. Positions stay as they are."""
        kinds = requests("fetch")
        sent_s, cuts = now_s(), self._history.cuts
        answer = await self._client.call(
            "fetch",
            12,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=1 if self._is_committed else 0,
            topics=[
                kinds.FetchTopic(
                    topic=part.topic,
                    partitions=[
                        kinds.FetchPartition(
                            partition=part.partition,
                            fetch_offset=position.offset,
                            partition_max_bytes=bytes_max,
                        )
                    ],
                )
                for part, position in positions.items()
            ],
        )
        if answer.error_code not in RETRIABLE and answer.error_code:
            self._history.violate(f"{self._reader}: Fetch gave {answer.error_code}")
        found: dict[Part, Records] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                part = Part(topic.topic, one.partition_index)
                records = self._read(part, positions[part], one, sent_s, cuts)
                if records is not None:
                    found[part] = records
        return found

    def _read(self, part: Part, position: Position, one: Any, sent_s: float, cuts: int) -> Records | None:
        if one.error_code:
            is_expected = one.error_code in RETRIABLE or (
                one.error_code == OFFSET_OUT_OF_RANGE and not self.is_validated
            )
            if not is_expected:
                self._history.violate(f"{self._reader}: {part} at {position} gave {one.error_code}")
            return None
        aborted = [(entry.producer_id, entry.first_offset) for entry in one.aborted_transactions or ()]
        records = read_records(one.records or b"", position.offset, aborted if self._is_committed else ())
        if records.is_corrupt:
            self._history.violate(f"{self._reader}: {part} served damaged bytes at {position}")
        self.ends[part] = Ends(one.high_watermark, one.last_stable_offset)
        self._history.reads.append(
            Read(
                self._reader,
                part,
                position.offset,
                records.values,
                one.high_watermark,
                one.last_stable_offset,
                self._is_committed,
                sent_s,
                now_s(),
                cuts if cuts == self._history.cuts else -1,
            )
        )
        return records

    async def validate(self, positions: dict[Part, Position]) -> None:
        """Move back every position that lies behind the end of its epoch."""
        kinds = requests("offset_for_leader_epoch")
        known = {part: position for part, position in positions.items() if position.leader_epoch >= 0}
        answer = await self._client.call(
            "offset_for_leader_epoch",
            4,
            topics=[
                kinds.OffsetForLeaderTopic(
                    topic=part.topic,
                    partitions=[
                        kinds.OffsetForLeaderPartition(
                            partition=part.partition, leader_epoch=position.leader_epoch
                        )
                    ],
                )
                for part, position in known.items()
            ],
        )
        connection = self._client.connection_count
        for topic in answer.topics:
            for one in topic.partitions:
                part = Part(topic.topic, one.partition)
                if one.error_code:
                    raise NoAnswer(f"{part}: {one.error_code}")
                if 0 <= one.end_offset < positions[part].offset:
                    positions[part] = Position(one.end_offset, one.leader_epoch)
        self._connection_validated = connection
