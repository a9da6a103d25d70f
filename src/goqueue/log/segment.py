"""One segment: a `.log` file of batches with its sparse index. The last segment of a log is written to; the
others never change again, except that compaction replaces one as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from goqueue.log.batch import HEADER_BYTES, BatchHeader, decode_batch, frame_problem, read_header
from goqueue.log.disk import Disk, File, NotCached
from goqueue.log.index import IndexEntry, SegmentIndex, load_index
from goqueue.log.scan import Damage, EpochOf, Found, Scanner
from goqueue.model.errors import DataCorrupt

LOG_SUFFIX = ".log"
LOG_NAME = re.compile(r"(\d{20})\.log")
INDEX_SUFFIXES = (".index", ".timeindex")
_HEADER_WINDOW_BYTES = 8 * 1024
_HINT_COUNT_MAX = 64


def segment_prefix(folder: str, base_offset: int) -> str:
    return f"{folder}/{base_offset:020d}"


class Segment:
    """Offsets [base_offset, end_offset) in `size` bytes."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        size: int,
        end_offset: int,
        interval_bytes: int,
        epoch_of: EpochOf,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._prefix = segment_prefix(folder, base_offset)
        self.interval_bytes = interval_bytes
        self._epoch_of = epoch_of
        self._file: File | None = None
        self._is_pinned = False
        self._index: SegmentIndex | None = None
        self._sealed_max_timestamp: int | None = None
        self._hints: dict[int, int] = {}  # where a reader that goes on will look next
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size = size
        self.first_append_ms: int | None = None

    @property
    def path(self) -> str:
        return self._prefix + LOG_SUFFIX

    @property
    def prefix(self) -> str:
        return self._prefix

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records; -1 if it has none. Known without the index once it is sealed."""
        if self._index is not None:
            return self._index.max_timestamp
        if self._sealed_max_timestamp is None:
            self._sealed_max_timestamp = self.index().max_timestamp
        return self._sealed_max_timestamp

    def file(self, *, create: bool = False) -> File:
        """Held open while the segment is written to; readers of others open one for themselves."""
        return self._file or self._disk.open(self.path, create=create)

    def hold_open(self, *, create: bool = False) -> None:
        self._file = self.file(create=create)

    def release(self) -> None:
        if not self._is_pinned:
            self._file = None

    def pin(self) -> None:
        """Keep the file open, whatever happens to its name."""
        self.hold_open()
        self._is_pinned = True

    def index(self) -> SegmentIndex:
        """From memory, else from its files, else rebuilt from the log."""
        index = self._index
        if index is None:
            index = load_index(self._disk, self._prefix, self.base_offset, self.interval_bytes)
            if index is None or not self.matches(index):
                index = self._rebuilt_index()
            self._index = index
        return index

    def adopt_index(self, index: SegmentIndex) -> None:
        """Take an index that recovery found or built."""
        self._index = index

    def forget_index(self) -> None:
        """Drop the copy in memory; the files have it."""
        self._sealed_max_timestamp = self.max_timestamp
        self._index = None

    def append(
        self, chunks: Sequence[bytes | memoryview], *, end_offset: int, max_timestamp: int, size: int
    ) -> None:
        """Write a batch at the end. On an error the file is as it was, or the second error says it is not."""
        file, index = self._file or self.file(), self._index or self.index()
        try:
            file.append(chunks)
        except OSError:
            file.truncate(self.size)
            raise
        index.note_append(end_offset - 1, max_timestamp, self.size, size)
        self.size += size
        self.end_offset = end_offset

    def successor(self, *, size: int, end_offset: int, index: SegmentIndex) -> Segment:
        """The segment that compaction wrote in this one's place."""
        segment = Segment(
            self._disk,
            self._folder,
            self.base_offset,
            size=size,
            end_offset=end_offset,
            interval_bytes=self.interval_bytes,
            epoch_of=self._epoch_of,
        )
        segment.adopt_index(index)
        return segment

    def scan(self, position: int, expected: int, *, check_crc: bool) -> Iterator[Found | Damage]:
        return Scanner(self.file(), self.size, check_crc=check_crc, epoch_of=self._epoch_of).scan(
            position, expected
        )

    def read(self, offset: int, *, end: int, bytes_max: int, cached_only: bool) -> list[Found]:
        """The batches from the one that holds `offset`, checked. DataCorrupt if that one is damaged."""
        found = self._find(offset, cached_only=cached_only)
        scanner = Scanner(
            self.file(), self.size, check_crc=True, epoch_of=self._epoch_of, cached_only=cached_only
        )
        taken = scanner.take(*found, end=end, bytes_max=bytes_max) if found else []
        if not taken:  # a header on the way, or the batch itself, is damaged
            if cached_only:
                raise NotCached
            found = self._find_by_checksums(offset)
            taken = scanner.take(*found, end=end, bytes_max=bytes_max)
            if not taken:
                raise self._corrupt(*found)
        self._hint(taken[-1].header.end_offset, taken[-1].position + taken[-1].header.size)
        return taken

    def first_at_or_after(self, timestamp: int, *, from_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from `from_offset` on that is not older."""
        if self.size == 0 or self.max_timestamp < timestamp:
            return None
        index = self.index()
        if not self._is_time_true(index.before_time(timestamp), index):
            self._index = self._rebuilt_index()
        entry = self.index().before_time(timestamp)
        position, expected = self._batch_start(max(entry[1] if entry else self.base_offset, from_offset))
        for item in self.scan(position, expected, check_crc=True):
            if isinstance(item, Damage):
                raise self._corrupt(item.position, item.start)
            if item.header.max_timestamp < timestamp or item.header.last_offset < from_offset:
                continue
            for record in decode_batch(item.data, item.header):
                if record.timestamp_ms >= timestamp and record.offset >= from_offset:
                    return record.offset, record.timestamp_ms
        return None

    def boundary(self, offset: int) -> tuple[int, int]:
        """Position and offset of the last batch, sound or damaged, that starts at or before `offset`; both ends for the end
        offset."""
        if offset >= self.end_offset:
            return self.size, self.end_offset
        found = 0, self.base_offset
        for item in self.scan(*self._batch_start(offset), check_crc=True):
            start = item.start if isinstance(item, Damage) else item.header.base_offset
            if start > offset:
                break
            found = item.position, start
        return found

    def _find(self, offset: int, *, cached_only: bool) -> tuple[int, int] | None:
        """Position and base offset of the batch that holds `offset`; None if a header on the way is wrong."""
        hinted = self._hints.get(offset)
        if hinted is not None:
            return hinted, offset
        if cached_only and self._index is None:
            raise NotCached
        return self._walk_to(offset, check_crc=False, cached_only=cached_only)

    def _find_by_checksums(self, offset: int) -> tuple[int, int]:
        """As `_find` where a header on the way lies about its length or its offsets; DataCorrupt if the offset is in
        the damage itself."""
        found = self._walk_to(offset, check_crc=True, cached_only=False)
        if found is None:
            raise DataCorrupt(
                start=offset,
                end=self.end_offset,
                file=self.path,
                position=self.size,
                reason="the file ends early",
            )
        return found

    def _walk_to(self, offset: int, *, check_crc: bool, cached_only: bool) -> tuple[int, int] | None:
        position, expected = self._batch_start(offset, cached_only=cached_only)
        for item in self._walk(position, expected, check_crc=check_crc, cached_only=cached_only):
            if isinstance(item, Found):
                if item.header.end_offset > offset:
                    return item.position, item.header.base_offset
            elif not check_crc:
                return None
            elif item.end is None or offset < item.end:
                raise self.as_error(item)
        return None

    def _walk(
        self, position: int, expected: int, *, check_crc: bool = False, cached_only: bool = False
    ) -> Iterator[Found | Damage]:
        """From batch to batch, usually by their headers alone and not far: in small windows."""
        scanner = Scanner(
            self.file(),
            self.size,
            check_crc=check_crc,
            window_bytes=_HEADER_WINDOW_BYTES,
            epoch_of=self._epoch_of,
            cached_only=cached_only,
        )
        return scanner.scan(position, expected)

    def _batch_start(
        self, offset: int, candidate: SegmentIndex | None = None, *, cached_only: bool = False
    ) -> tuple[int, int]:
        """A position at or before the batch that holds `offset`, and the base offset there. By an index that is not
        believed yet, if one is given."""
        entry = (candidate or self.index()).before_offset(offset)
        if entry is None:
            return 0, self.base_offset
        header = self._header_at(entry, cached_only=cached_only)
        if header is None and candidate is None:  # the index lies; the log is the truth
            if cached_only:
                raise NotCached
            self._index = self._rebuilt_index()
            entry = self._index.before_offset(offset)
            header = self._header_at(entry) if entry else None
        if entry is None or header is None:
            return 0, self.base_offset
        return entry.position, header.base_offset

    def _header_at(self, entry: IndexEntry, *, cached_only: bool = False) -> BatchHeader | None:
        """The header that an index entry points to, if it is the one that the entry says."""
        data = self.file().read(entry.position, HEADER_BYTES, cached_only=cached_only)
        if len(data) < HEADER_BYTES:
            return None
        header = read_header(data)
        return header if frame_problem(header) is None and header.last_offset == entry.last_offset else None

    def matches(self, index: SegmentIndex) -> bool:
        """Whether the last entries of a loaded index match the log. Its largest timestamp decides what is
        searched and what is deleted, so it is checked before it is believed."""
        last, last_time = index.last_entry(), index.last_time()
        if last_time is None:
            return last is None and self.size == 0
        if last is not None and self._header_at(last) is None:
            return False
        return (
            self._is_time_true(last_time, index) and self._newest_after(last_time[1], index) <= last_time[0]
        )

    def _newest_after(self, offset: int, index: SegmentIndex) -> int:
        """The largest timestamp behind an offset. An index that was cut short is well-formed and says too little."""
        position, expected = self._batch_start(offset, index)
        walk = self._walk(position, expected)
        headers = (item.header for item in walk if isinstance(item, Found))
        return max((header.max_timestamp for header in headers if header.base_offset > offset), default=-1)

    def _is_time_true(self, entry: tuple[int, int] | None, index: SegmentIndex) -> bool:
        """Whether a batch ends at the entry's offset and has its timestamp. One that lies would hide records."""
        if entry is None:
            return True
        timestamp, offset = entry
        position, expected = self._batch_start(offset, index)
        for item in self._walk(position, expected):
            if isinstance(item, Found) and item.header.last_offset >= offset:
                return item.header.last_offset == offset and item.header.max_timestamp == timestamp
        return False

    def _rebuilt_index(self) -> SegmentIndex:
        index = SegmentIndex(self.base_offset, self.interval_bytes)
        if self.size:
            for item in self.scan(0, self.base_offset, check_crc=True):
                if isinstance(item, Found):
                    index.note(item.header, item.position)
        index.seal()
        return index

    def _corrupt(self, position: int, expected: int) -> DataCorrupt:
        item = next(self.scan(position, expected, check_crc=True))
        if isinstance(item, Found):
            raise OSError(f"{self.path} gave different bytes at {position} when it was read again")
        return self.as_error(item)

    def as_error(self, damage: Damage) -> DataCorrupt:
        return DataCorrupt(
            start=damage.start,
            end=self.end_offset if damage.end is None else damage.end,
            file=self.path,
            position=damage.position,
            reason=damage.reason,
        )

    def _hint(self, offset: int, position: int) -> None:
        if len(self._hints) >= _HINT_COUNT_MAX:
            self._hints.clear()
        self._hints[offset] = position


def remove_segment(disk: Disk, prefix: str) -> None:
    """The log last: an index without a log is noise, a log without an index is whole."""
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        disk.remove(prefix + suffix)
