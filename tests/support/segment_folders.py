"""Random logs written out as folders, with what the broker's own log says of them: what the readers of files must find."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support.logs import FOLDER, LogOnDisk, Timed, small_settings, timed_batch

from goqueue.log.batch import decode_batch
from goqueue.log.compression import Codec
from goqueue.model.record import Producer, StoredRecord
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.span import Place, Span, Transport
from goqueue.sim.disk import SimDisk

PLACE = Place("topic", 0)
_CODECS = tuple(Codec)


class Row(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RandomLog:
    """A log that random steps write, and which of its offsets belong to aborted transactions."""

    def __init__(self, seed: int, *, segment_bytes: int = 700) -> None:
        self.random = Random(seed)
        self.disk = LogOnDisk(seed, small_settings(segment_bytes=segment_bytes))
        self.aborted: set[int] = set()
        self._sequences: dict[int, int] = {}
        self._open: dict[int, list[int]] = {}
        self._now_ms = 1_000

    @property
    def end(self) -> int:
        return self.disk.log.end

    def steps(self, count: int, *, with_cleaning: bool = True) -> None:
        kinds = ["plain"] * 4 + ["transactional"] * 4 + ["end"] * 2 + ["checkpoint"]
        if with_cleaning:
            kinds += ["compact", "delete"]
        for _ in range(count):
            self._now_ms += self.random.randrange(0, 50)
            kind = self.random.choice(kinds)
            if kind == "plain":
                self.disk.append(self._batch(None), self._now_ms)
            elif kind == "transactional":
                self.write(self.random.randrange(1, 4))
            elif kind == "end" and self._open:
                self.finish(self.random.choice(sorted(self._open)), is_commit=self.random.random() < 0.5)
            elif kind == "checkpoint":
                self.disk.lead()
                self.disk.checkpoint()
            elif kind == "compact" and self.random.random() < 0.3:
                self.disk.compact(self._now_ms)
            elif kind == "delete" and self.random.random() < 0.2:
                log = self.disk.log
                log.delete_before(self.random.randrange(log.log_start, log.high_watermark + 1))
                self.disk.lead()
                self.disk.checkpoint()

    def write(self, producer_id: int) -> None:
        """A batch of a transaction."""
        sequence = self._sequences.get(producer_id, 0)
        batch = self._batch(Producer(producer_id, 0, sequence))
        base = self.disk.append(batch, self._now_ms)
        self._open.setdefault(producer_id, []).extend(range(base, self.end))
        self._sequences[producer_id] = sequence + self.end - base

    def finish(self, producer_id: int, *, is_commit: bool) -> None:
        self.disk.append_marker(producer_id, 0, is_commit=is_commit, now_ms=self._now_ms)
        offsets = self._open.pop(producer_id)
        if not is_commit:
            self.aborted.update(offsets)

    def finish_all(self) -> None:
        for producer_id in sorted(self._open):
            self.finish(producer_id, is_commit=False)

    def _batch(self, producer: Producer | None) -> bytes:
        records: list[Timed] = []
        for _ in range(self.random.randrange(1, 6)):
            key = self.random.choice([None, b"a", b"b", b"c", b"d"])
            value = None if key and self.random.random() < 0.1 else self.random.randbytes(12)
            headers = (("h", self.random.choice([None, b"1"])),) if self.random.random() < 0.2 else ()
            records.append((self._now_ms + self.random.randrange(0, 40), key, value, headers))
        codec = self.random.choice(_CODECS)
        return timed_batch(records, producer=producer, codec=codec, is_transactional=producer is not None)

    def rows(self, *, committed: bool) -> list[Row]:
        """As the broker's log gives them."""
        log, rows = self.disk.log, list[Row]()
        end = self.disk.last_stable_offset if committed else log.high_watermark
        offset = log.log_start
        while offset < end:
            for found in (piece := log.read(offset, end=end, bytes_max=10_000)).batches:
                if not found.header.is_control:
                    rows += map(_row, decode_batch(found.data, found.header))
            offset = piece.next_offset
        hidden = self.aborted if committed else set()
        return [row for row in rows if log.log_start <= row.offset < end and row.offset not in hidden]

    def write_out(self, root: Path) -> Path:
        """What is durable, below a folder; removals are."""
        self.disk.mount.sync_dir(FOLDER)
        return write_out(self.disk.device, root)


def write_out(device: SimDisk, root: Path) -> Path:
    """Make a folder what a simulated disk durably holds."""
    files = device.snapshot()
    for path in (root / "logs").rglob("*"):
        if path.is_file() and str(path.relative_to(root)) not in files:
            path.unlink()
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.unlink(missing_ok=True)  # as a rename does: whoever has the old one open goes on reading it
            path.write_bytes(content)
    return root


def _row(record: StoredRecord) -> Row:
    return Row(record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))


def read_rows(transport: Transport, span: Span, *, committed: bool) -> list[Row]:
    """Through the decoder that every transport shares."""
    columns = ("key", "value", "offset", "timestamp", "headers")
    decoder = SpanDecoder(span, columns, committed=committed)
    rows: list[Row] = []
    for batch in decoder.decode(transport.read(span, committed=committed)):
        for one in batch.to_pylist():
            headers = tuple((header["key"], header["value"]) for header in one["headers"] or ())
            stamp = round(one["timestamp"].timestamp() * 1_000)
            rows.append(Row(one["offset"], stamp, one["key"], one["value"], headers))
    return rows


def whole(transport: Transport, *, committed: bool, place: Place = PLACE) -> Span:
    start = transport.earliest([place])[place]
    return Span(*place, start, transport.latest([place], committed=committed)[place])


def all_rows(transport: Transport, *, committed: bool, place: Place = PLACE) -> list[Row]:
    return read_rows(transport, whole(transport, committed=committed, place=place), committed=committed)
