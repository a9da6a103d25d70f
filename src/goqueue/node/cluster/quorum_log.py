"""Raft's log, vote and snapshot on disk: `logs/__cluster_metadata/0` (docs/format/metadata.md).

One entry is one record in one batch of its own, so that the log can be cut anywhere. The offset of the record is the
entry's index less one, the leader epoch of its batch is its term. The vote is in `quorum`, a small file that is replaced;
a snapshot is in a file that is named after the entry it ends with, and the log begins behind it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c
from msgspec import Struct

from goqueue.core.raft.messages import Entry, EntryKind, Snapshot
from goqueue.core.raft.raft import HardState, Ready, Restored
from goqueue.log.batch import PREFIX, PREFIX_BYTES, decode_batch, encode_batch, read_header
from goqueue.log.disk import Disk, read_file, replace_file
from goqueue.log.recovery import QUARANTINE, reset_log, truncate_log
from goqueue.model.errors import DataCorrupt, StorageError, TimedOut
from goqueue.model.names import METADATA_TOPIC
from goqueue.model.record import NewRecord
from goqueue.model.settings import UNLIMITED, TopicSettings
from goqueue.node.clock import Clock
from goqueue.node.folder import LOGS, partition_folder
from goqueue.node.opening import PartitionOpener
from goqueue.node.partition import Partition
from goqueue.node.threads import Threads

logger = logging.getLogger(__name__)
_SETTINGS: Final = TopicSettings(retention_ms=UNLIMITED)
_FETCH_BYTES: Final = 1024 * 1024
_STATE: Final = "quorum"
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})\.snapshot")
_KEYS: Final = {EntryKind.NOOP: b"noop", EntryKind.VOTERS: b"voters", EntryKind.COMMAND: None}
_KINDS: Final = {key: kind for kind, key in _KEYS.items()}


class _Snapshot(Struct, frozen=True):
    index: int
    term: int
    voters: tuple[str, ...]
    payload: bytes


class QuorumLog:
    def __init__(self, disk: Disk, opener: PartitionOpener, threads: Threads, clock: Clock) -> None:
        self._disk = disk
        self._opener = opener
        self._threads = threads
        self._clock = clock
        self._folder = partition_folder(METADATA_TOPIC, 0)
        self._partition: Partition | None = None

    @property
    def partition(self) -> Partition:
        if self._partition is None:
            raise StorageError("the metadata log is used before it was opened")
        return self._partition

    @property
    def is_open(self) -> bool:
        return self._partition is not None

    async def open(self, voters: Sequence[str], *, may_rejoin: bool) -> Restored:
        """What is on disk. A damaged log is put aside if others can give it back (`may_rejoin`), else it is an error."""
        await self._open_partition()
        state: HardState | None = None
        snapshot: Snapshot | None = None
        entries: list[Entry] = []
        is_lost = False
        try:
            state = await self._threads.run(self._load_state)
            if self.partition.damage and may_rejoin:
                raise StorageError("; ".join(self.partition.damage))
            snapshot = await self._threads.run(self._load_snapshot)
            await self._begin_behind(snapshot)
            entries = await self._load_entries(snapshot)
        except (DataCorrupt, StorageError) as error:
            if not may_rejoin:
                raise
            logger.error("the metadata log is damaged; it is put aside error=%r", error.sentence)
            snapshot, entries, is_lost = None, [], True
            await self._put_aside(state)
            state = await self._threads.run(self._load_state)
        return self._restored(state, snapshot, entries, voters, is_lost=is_lost)

    async def reload(self, voters: Sequence[str]) -> Restored:
        """What is on disk for sure, after a write that failed. It may have left something behind that only the page cache has:
        entries after the last fsync do not count, and the state is written once more."""
        state = await self._threads.run(self._load_state)
        if state is not None:
            known = state
            await self._threads.run(lambda: self._save_state(known))
        await self._threads.run(lambda: self._disk.sync_dir(self._folder))
        snapshot = await self._threads.run(self._load_snapshot)
        if self.partition.log.failure is None:
            await self._begin_behind(snapshot)
        entries = await self._load_entries(snapshot)
        durable_end = self.partition.log.durable_end
        entries = [entry for entry in entries if entry.index <= durable_end]
        return self._restored(state, snapshot, entries, voters, is_lost=False)

    def _restored(
        self,
        state: HardState | None,
        snapshot: Snapshot | None,
        entries: list[Entry],
        voters: Sequence[str],
        *,
        is_lost: bool,
    ) -> Restored:
        latest = self.partition.log.epochs.latest
        term = max(state.term if state else 0, latest, snapshot.term if snapshot else 0, 0)
        is_recovering = is_lost or (state is not None and state.is_recovering)
        hard = HardState(term, state.vote if state and state.term == term else None, is_recovering)
        return Restored(hard, snapshot, tuple(entries), tuple(voters))

    async def _open_partition(self) -> None:
        self._disk.make_dir(self._folder)
        self._disk.sync_dir(f"{LOGS}/{METADATA_TOPIC}")
        self._disk.sync_dir(LOGS)
        self._disk.sync_dir("")
        (self._partition,) = await self._opener.open(METADATA_TOPIC, [0], _SETTINGS)

    async def _put_aside(self, state: HardState | None) -> None:
        """Nothing is deleted that somebody may want to look at. That the node has lost its memory is on disk before the first
        file goes, so that a crash in between cannot make it look like one that never had any."""
        partition = self.partition
        term = max(state.term if state else 0, partition.log.epochs.latest, 0)
        vote = state.vote if state is not None and state.term == term else None
        partition.retire()
        await partition.close()
        await self._threads.run(lambda: self._save_state(HardState(term, vote, is_recovering=True)))
        await self._threads.run(self._move_away)
        await self._open_partition()

    def _move_away(self) -> None:
        above = f"{QUARANTINE}/{LOGS}/{METADATA_TOPIC}"
        taken = {entry.name for entry in self._disk.list(above)}
        folder = next(f"{above}/{at}" for at in range(len(taken) + 1) if str(at) not in taken)
        self._disk.make_dir(folder)
        for path in (above, f"{QUARANTINE}/{LOGS}", QUARANTINE, ""):
            self._disk.sync_dir(path)
        for entry in self._disk.list(self._folder):
            if entry.name != _STATE:
                self._disk.rename(f"{self._folder}/{entry.name}", f"{folder}/{entry.name}")
        self._disk.sync_dir(folder)
        self._disk.sync_dir(self._folder)

    # ---------------------------------------------------------------- reading

    def _load_state(self) -> HardState | None:
        content = read_file(self._disk, f"{self._folder}/{_STATE}")
        if content is None:
            return None
        return msgspec.json.decode(_checked(content, f"{self._folder}/{_STATE}"), type=HardState)

    def _load_snapshot(self) -> Snapshot | None:
        names = sorted(
            entry.name for entry in self._disk.list(self._folder) if _SNAPSHOT_NAME.fullmatch(entry.name)
        )
        if not names:
            return None
        path = f"{self._folder}/{names[-1]}"
        found = msgspec.json.decode(_checked(read_file(self._disk, path) or b"", path), type=_Snapshot)
        return Snapshot(found.index, found.term, found.voters, found.payload)

    async def _load_entries(self, snapshot: Snapshot | None) -> list[Entry]:
        log = self.partition.log
        offset = max(log.log_start, snapshot.index if snapshot else 0)
        if offset > (snapshot.index if snapshot else 0):
            raise StorageError(f"{self._folder} begins at {offset} and has no snapshot of what came before")
        entries: list[Entry] = []
        while offset < log.end:
            part = await self.partition.read(offset, end=log.end, bytes_max=_FETCH_BYTES, is_own=True)
            for batch in part.batches:
                for record in decode_batch(batch.data, batch.header):
                    if record.offset >= offset:
                        kind = _KINDS.get(record.key)
                        if kind is None:
                            raise StorageError(f"{self._folder} has an unknown entry at {record.offset}")
                        entries.append(
                            Entry(record.offset + 1, batch.header.leader_epoch, kind, record.value or b"")
                        )
            offset = part.next_offset
        return entries

    # ---------------------------------------------------------------- writing

    async def persist(self, ready: Ready) -> None:
        """In the order that Raft wants; back when all of it is on disk."""
        if ready.snapshot is not None:
            await self._install(ready.snapshot)
        if ready.entries:
            await self._write(ready.entries)
        if ready.state is not None:
            state = ready.state
            await self._threads.run(lambda: self._save_state(state))

    async def _write(self, entries: Sequence[Entry]) -> None:
        partition = self.partition
        log, start = partition.log, entries[0].index - 1
        if start < log.end:
            owner = partition.owner
            async with partition.commit.held():
                await self._threads.run(lambda: truncate_log(log, self._disk, owner, start, forced=True))
        now_ms = self._clock.now_ms()
        for entry in entries:
            if entry.term != log.epochs.current or log.durable_epoch != entry.term:
                log.adopt_epoch(entry.term, log.end)
                await partition.commit.checkpoint()
            batch = _encode(entry, now_ms)
            log.replicate(batch, read_header(batch), now_ms=now_ms)
        log.note_high_watermark(log.end)
        partition.note_write()
        await self._until_durable(log.end)

    async def _until_durable(self, end: int) -> None:
        """However long it takes: nothing may be sent before it is known whether this is on disk."""
        while True:
            try:
                return await self.partition.commit.wait(end)
            except TimedOut as error:
                logger.warning("the metadata log is slow error=%r", error.sentence)

    def _save_state(self, state: HardState) -> None:
        replace_file(self._disk, f"{self._folder}/{_STATE}", _with_checksum(msgspec.json.encode(state)))

    async def _install(self, snapshot: Snapshot) -> None:
        """Another node's: it takes the place of everything here."""
        await self.save_snapshot(snapshot)
        await self._reset(snapshot.index)

    async def _begin_behind(self, snapshot: Snapshot | None) -> None:
        """Another node's was saved, and the log did not come to begin behind it: the process ended, or the disk failed."""
        if snapshot is not None and self.partition.log.end < snapshot.index:
            await self._reset(snapshot.index)

    async def _reset(self, offset: int) -> None:
        partition = self.partition
        log, owner = partition.log, partition.owner
        async with partition.commit.held():
            await self._threads.run(lambda: reset_log(log, self._disk, owner, offset))

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        content = _with_checksum(
            msgspec.json.encode(_Snapshot(snapshot.index, snapshot.term, snapshot.voters, snapshot.payload))
        )
        path = f"{self._folder}/{snapshot.index:020d}.snapshot"
        await self._threads.run(lambda: replace_file(self._disk, path, content))

    async def forget_before(self, snapshot: Snapshot) -> None:
        """The log may begin behind a snapshot that is on disk, and older ones are of no use."""
        log = self.partition.log
        if log.log_start < snapshot.index <= log.high_watermark:
            log.delete_before(snapshot.index)
            await self.partition.commit.checkpoint()
        await self._threads.run(lambda: self._remove_older(snapshot.index))

    def _remove_older(self, index: int) -> None:
        for entry in self._disk.list(self._folder):
            match = _SNAPSHOT_NAME.fullmatch(entry.name)
            if match and int(match[1]) < index:
                self._disk.remove(f"{self._folder}/{entry.name}")
        self._disk.sync_dir(self._folder)


def _encode(entry: Entry, now_ms: int) -> bytes:
    header, batch = encode_batch([NewRecord(_KEYS[entry.kind], entry.payload)], now_ms)
    return PREFIX.pack(entry.index - 1, header.length, entry.term) + batch[PREFIX_BYTES:]


def _with_checksum(body: bytes) -> bytes:
    return b"%08x\n" % crc32c(body) + body + b"\n"


def _checked(content: bytes, path: str) -> bytes:
    first, _, body = content.partition(b"\n")
    body = body.removesuffix(b"\n")
    if first != b"%08x" % crc32c(body):
        raise StorageError(f"the checksum of {path} does not match")
    return body
