"""What the files next to this one hold, and how they were made: `python -m tests.golden.golden_files` writes
them again. Do that only with a change of format: version, ADR and CHANGELOG go with it."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import cramjam
import msgspec

from goqueue.log.aborted import Aborted, AbortedIndex
from goqueue.log.batch import ATTRIBUTE_TRANSACTIONAL, BatchHeader, assemble, read_header
from goqueue.log.checkpoint import FILE_NAME, Checkpoint, save_checkpoint
from goqueue.log.compression import Codec, compress
from goqueue.log.control import encode_marker
from goqueue.log.disk import read_file
from goqueue.log.index import SegmentIndex
from goqueue.log.records import Row, encode_row
from goqueue.sim.disk import SimDisk

FOLDER = Path(__file__).parent
COMPRESSED = ("gzip", "snappy", "snappy-xerial", "lz4", "zstd")

BASE_OFFSET = 42
BASE_TIMESTAMP = 1_700_000_000_000
ROWS: list[Row] = [
    (0, 0, b"key", b"value", (("name", b"1"), ("name", None), ("", b""))),
    (1, -250, None, b"", ()),
    (2, 1_000, b"", None, ()),
    (3, 5, b"long", b"x" * 300, ()),
]
ABORTED = [Aborted(7, 10, 25, 11), Aborted(8, 11, 30, 31)]
CHECKPOINT = Checkpoint(
    log_start=3,
    high_watermark=120,
    clean_end=10,
    recovery_offset=118,
    recovery_segment=100,
    recovery_position=4_321,
    recovery_max_timestamp=BASE_TIMESTAMP,
    epoch_latest=2,
    epochs=[(1, 0), (2, 90)],
    owner=msgspec.Raw(
        b'{"producers":[[7,0,1700000000000,[[7,0,4,5,116,1700000000000,true]],116,-1],[8,4,1700000000005,[],null,2]]}'
    ),
    aborted_count=2,
    aborted_crc=0xA2B3C4D5,
)


def build_batch_file(codec: Codec = Codec.NONE, *, is_xerial: bool = False) -> bytes:
    payload = b"".join(map(encode_row, ROWS))
    if is_xerial:
        block = bytes(cramjam.snappy.compress_raw(payload))
        payload = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    else:
        payload = compress(codec, payload)
    return assemble(
        BatchHeader(
            base_offset=BASE_OFFSET,
            length=0,
            leader_epoch=7,
            magic=2,
            crc=0,
            attributes=codec | ATTRIBUTE_TRANSACTIONAL,
            last_offset_delta=len(ROWS) - 1,
            base_timestamp=BASE_TIMESTAMP,
            max_timestamp=BASE_TIMESTAMP + 1_000,
            producer_id=77,
            producer_epoch=3,
            base_sequence=5,
            record_count=len(ROWS),
        ),
        payload,
    )


def build_index_files() -> tuple[bytes, bytes]:
    """Of a segment from offset 1000 with ten batches of two records, whose clock once goes back."""
    index = SegmentIndex(1_000, 4_096)
    header = read_header(build_batch_file())._replace(length=3_000 - 12, last_offset_delta=1)
    for at, second in enumerate([1, 2, 3, 9, 4, 5, 6, 7, 8, 10]):
        stamp = BASE_TIMESTAMP + 1_000 * second
        index.note(header._replace(base_offset=1_000 + 2 * at, max_timestamp=stamp), 3_000 * at)
    index.seal()
    return index.encode()


def build_marker_file(*, is_commit: bool) -> bytes:
    _, batch = encode_marker(77, 3, is_commit=is_commit, coordinator_epoch=5, timestamp_ms=BASE_TIMESTAMP)
    return batch


def build_aborted_file() -> bytes:
    index = AbortedIndex()
    for entry in ABORTED:
        index.add(entry)
    return index.encode()


def build_checkpoint_file() -> bytes:
    mount = SimDisk(Random(0)).mount()
    mount.make_dir("folder")
    save_checkpoint(mount, "folder", CHECKPOINT)
    content = read_file(mount, f"folder/{FILE_NAME}")
    assert content is not None
    return content


def build_all() -> dict[str, bytes]:
    index, timeindex = build_index_files()
    files = {
        "plain.batch": build_batch_file(),
        "00000000000000001000.index": index,
        "00000000000000001000.timeindex": timeindex,
        "checkpoint": build_checkpoint_file(),
        "commit.batch": build_marker_file(is_commit=True),
        "abort.batch": build_marker_file(is_commit=False),
        "aborted.index": build_aborted_file(),
    }
    for name in COMPRESSED:
        codec, _, framing = name.partition("-")
        files[f"{name}.batch"] = build_batch_file(Codec[codec.upper()], is_xerial=bool(framing))
    return files


if __name__ == "__main__":
    for name, content in build_all().items():
        (FOLDER / name).write_bytes(content)
