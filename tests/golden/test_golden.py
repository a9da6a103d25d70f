"""The formats on disk, byte for byte: what is written today is what the documents say and what was written before."""

from __future__ import annotations

import struct
from random import Random

import msgspec
import pytest
from crc32c import crc32c
from tests.golden.golden_files import COMPRESSED, FOLDER, build_all

from goqueue.core.producer import Appended, ProducerEntry
from goqueue.log.aborted import Aborted, AbortedIndex, decode_aborted
from goqueue.log.batch import crc_matches, decode_batch, read_header, validate_new
from goqueue.log.checkpoint import Checkpoint, load_checkpoint
from goqueue.log.control import Marker, read_marker
from goqueue.log.index import IndexEntry, SegmentIndex
from goqueue.model.record import StoredRecord
from goqueue.node.producer_state import ProducerState
from goqueue.sim.disk import SimDisk

SECOND = 1_000
START = 1_700_000_000_000
PINNED = [
    "plain.batch",
    "00000000000000001000.index",
    "00000000000000001000.timeindex",
    "checkpoint",
    "commit.batch",
    "abort.batch",
    "aborted.index",
]
RECORDS = [
    StoredRecord(42, START, b"key", b"value", (("name", b"1"), ("name", None), ("", b""))),
    StoredRecord(43, START - 250, None, b""),
    StoredRecord(44, START + SECOND, b"", None),
    StoredRecord(45, START + 5, b"long", b"x" * 300),
]


def golden(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", PINNED)
def test_what_is_written_today_equals_the_golden_file(name: str) -> None:
    assert build_all()[name] == golden(name)


# ---------------------------------------------------------------- batch


@pytest.mark.parametrize("name", ["plain", *COMPRESSED])
def test_golden_batch_is_valid_and_decodes_to_the_known_records(name: str) -> None:
    batch = golden(f"{name}.batch")
    header = validate_new(batch, 1_000)
    assert list(decode_batch(batch, header)) == RECORDS
    assert (header.base_offset, header.leader_epoch, header.magic) == (42, 7, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
    assert (header.base_timestamp, header.max_timestamp) == (START, START + SECOND)


class Reader:
    """A reader of docs/format/record.md that shares nothing with the program's."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        bits = ""
        while True:
            (byte,) = self.take(1)
            bits = f"{byte & 0x7F:07b}" + bits
            if byte < 0x80:
                break
        unsigned = int(bits, 2)
        return unsigned // 2 if unsigned % 2 == 0 else -(unsigned + 1) // 2

    def block(self) -> bytes | None:
        length = self.varint()
        return None if length == -1 else self.take(length)


def test_plain_batch_is_laid_out_as_the_document_says() -> None:
    batch = golden("plain.batch")
    fields = {  # docs/format/record.md: at, struct, value
        "base offset": (0, ">q", 42),
        "length": (8, ">i", len(batch) - 12),
        "leader epoch": (12, ">i", 7),
        "magic": (16, ">b", 2),
        "CRC32-C": (17, ">I", crc32c(batch[21:])),
        "attributes": (21, ">h", 0x10),
        "last offset delta": (23, ">i", 3),
        "base timestamp": (27, ">q", START),
        "max timestamp": (35, ">q", START + SECOND),
        "producer id": (43, ">q", 77),
        "producer epoch": (51, ">h", 3),
        "base sequence": (53, ">i", 5),
        "record count": (57, ">i", 4),
    }
    for name, (at, form, value) in fields.items():
        assert struct.unpack_from(form, batch, at) == (value,), name
    reader = Reader(batch[61:])
    for record in RECORDS:
        length = reader.varint()
        end = reader.at + length
        assert reader.take(1) == b"\x00"
        assert reader.varint() == record.timestamp_ms - START
        assert reader.varint() == record.offset - 42
        assert reader.block() == record.key
        assert reader.block() == record.value
        headers = [((reader.block() or b"").decode(), reader.block()) for _ in range(reader.varint())]
        assert tuple(headers) == record.headers
        assert reader.at == end
    assert reader.at == len(batch) - 61


def test_document_has_each_field_of_the_header_where_the_program_has_it() -> None:
    """The table of docs/format/record.md, against a batch whose every header byte is told apart."""
    lines = (FOLDER.parents[1] / "docs" / "format" / "record.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if line.startswith("| ")]
    rows = [(int(at), int(size), name) for at, size, name in table if at.isdigit() and size.isdigit()]
    assert [name for _, _, name in rows] == [
        "base offset",
        "length",
        "leader epoch",
        "magic",
        "CRC32-C",
        "attributes",
        "last offset delta",
        "base timestamp",
        "max timestamp",
        "producer id",
        "producer epoch",
        "base sequence",
        "record count",
    ]
    data = bytes(range(1, 62))
    assert [int.from_bytes(data[at : at + size], "big") for at, size, _ in rows] == list(read_header(data))


def test_golden_batch_with_one_flipped_byte_is_noticed() -> None:
    batch = golden("plain.batch")
    for at in range(21, len(batch)):
        damaged = batch[:at] + bytes([batch[at] ^ 0xFF]) + batch[at + 1 :]
        assert not crc_matches(damaged, 0, read_header(damaged)._replace(length=len(batch) - 12))


# ---------------------------------------------------------------- markers


@pytest.mark.parametrize(("name", "kind"), [("abort", 0), ("commit", 1)])
def test_golden_marker_is_laid_out_as_the_document_says(name: str, kind: int) -> None:
    batch = golden(f"{name}.batch")
    header = read_header(batch)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    reader = Reader(batch[61:])
    assert reader.varint() == len(batch) - 62
    assert (reader.take(1), reader.varint(), reader.varint()) == (b"\x00", 0, 0)
    assert reader.block() == struct.pack(">hh", 0, kind)
    assert reader.block() == struct.pack(">hi", 0, 5)
    assert reader.varint() == 0
    assert read_marker(batch, header) == Marker(is_commit=kind == 1, coordinator_epoch=5)


# ---------------------------------------------------------------- indexes


def test_golden_index_decodes_to_the_known_entries() -> None:
    prefix = "00000000000000001000"
    index = SegmentIndex.decode(1_000, 4_096, golden(f"{prefix}.index"), golden(f"{prefix}.timeindex"))
    assert index is not None
    assert index.entries() == [
        IndexEntry(1_005, 6_000),
        IndexEntry(1_009, 12_000),
        IndexEntry(1_013, 18_000),
        IndexEntry(1_017, 24_000),
    ]
    assert index.time_entries() == [
        (START + 3 * SECOND, 1_005),
        (START + 9 * SECOND, 1_007),
        (START + 10 * SECOND, 1_019),
    ]


def test_golden_index_files_are_laid_out_as_the_document_says() -> None:
    offsets = list(struct.iter_unpack(">ii", golden("00000000000000001000.index")))
    assert offsets == [(5, 6_000), (9, 12_000), (13, 18_000), (17, 24_000)]
    times = list(struct.iter_unpack(">qi", golden("00000000000000001000.timeindex")))
    assert times == [(START + 3 * SECOND, 5), (START + 9 * SECOND, 7), (START + 10 * SECOND, 19)]


def test_golden_index_of_aborted_transactions_is_laid_out_as_the_document_says() -> None:
    content = golden("aborted.index")
    assert struct.unpack_from(">4siq", content) == (b"GQAB", 1, 2)
    assert list(struct.iter_unpack(">qqqq", content[16:-4])) == [(7, 10, 25, 11), (8, 11, 30, 31)]
    assert struct.unpack(">I", content[-4:]) == (crc32c(content[:-4]),)
    index = decode_aborted(content)
    assert isinstance(index, AbortedIndex)
    assert list(index) == [Aborted(7, 10, 25, 11), Aborted(8, 11, 30, 31)]


# ---------------------------------------------------------------- checkpoint


def load(content: bytes) -> Checkpoint | str | None:
    mount = SimDisk(Random(0)).mount()
    mount.make_dir("folder")
    mount.open("folder/checkpoint", create=True).append([content])
    return load_checkpoint(mount, "folder")


def checkpoint_of(body: bytes) -> bytes:
    return b"goqueue-checkpoint 2 %08x\n" % crc32c(body) + body + b"\n"


def body_of(content: bytes) -> bytes:
    return content.split(b"\n")[1]


def test_golden_checkpoint_decodes_to_the_known_values() -> None:
    found = load(golden("checkpoint"))
    assert isinstance(found, Checkpoint)
    assert (found.log_start, found.high_watermark, found.clean_end) == (3, 120, 10)
    assert (found.recovery_offset, found.recovery_segment, found.recovery_position) == (118, 100, 4_321)
    assert (found.recovery_max_timestamp, found.epoch_latest) == (START, 2)
    assert found.epochs == [(1, 0), (2, 90)]
    assert (found.aborted_count, found.aborted_crc) == (2, 0xA2B3C4D5)
    assert found.needs_its_segment
    state = ProducerState()
    state.restore(found.owner)
    batch = Appended(7, 0, 4, 5, 116, START, is_transactional=True)
    assert state.table.entries() == [
        ProducerEntry(7, 0, START, (batch,), transaction_start=116),
        ProducerEntry(8, 4, START + 5, (), coordinator_epoch=2),
    ]
    assert state.snapshot() == found.owner


def test_checkpoint_of_the_version_before_is_still_read() -> None:
    found = load(golden("checkpoint-1"))
    assert isinstance(found, Checkpoint)
    assert (found.log_start, found.recovery_offset, found.epochs) == (3, 118, [(1, 0), (2, 90)])
    assert (found.aborted_count, found.aborted_crc) == (0, 0)
    state = ProducerState()
    state.restore(found.owner)
    assert state.table.entries() == [ProducerEntry(7, 0, START, (Appended(7, 0, 4, 5, 116, START),))]


def test_checkpoint_is_laid_out_as_the_document_says() -> None:
    content = golden("checkpoint")
    body = body_of(content)
    assert content == b"goqueue-checkpoint 2 %08x\n%s\n" % (crc32c(body), body)
    document = (FOLDER.parents[1] / "docs" / "format" / "checkpoint.md").read_text()
    for field in msgspec.json.decode(body):
        assert f"`{field}`" in document


def test_checkpoint_with_any_flipped_bit_is_refused() -> None:
    content = golden("checkpoint")
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert load(bytes(damaged)) == "the checkpoint's checksum does not match", bit


def test_checkpoint_cut_at_any_byte_before_its_last_newline_is_refused() -> None:
    content = golden("checkpoint")
    for end in range(len(content) - 1):
        assert load(content[:end]) == "the checkpoint's checksum does not match", end
    assert load(content[:-1]) == load(content)


def test_checkpoint_with_an_unknown_field_is_refused() -> None:
    body = body_of(golden("checkpoint")).replace(b'{"log_start"', b'{"new":1,"log_start"')
    assert load(checkpoint_of(body)) == ("the checkpoint cannot be read: Object contains unknown field `new`")


@pytest.mark.parametrize(
    "change", [(b'"log_start":3,', b""), (b":120,", b':"120",'), (b"[1,0]", b"[1]"), (b"}", b"")]
)
def test_checkpoint_with_a_field_that_is_missing_or_wrong_is_refused(change: tuple[bytes, bytes]) -> None:
    found = load(checkpoint_of(body_of(golden("checkpoint")).replace(*change)))
    assert isinstance(found, str)
    assert found.startswith("the checkpoint cannot be read: ")


def test_checkpoint_of_another_version_is_refused() -> None:
    other = golden("checkpoint").replace(b"goqueue-checkpoint 2 ", b"goqueue-checkpoint 3 ")
    assert load(other) == "the checkpoint's checksum does not match"


def test_no_checkpoint_is_none() -> None:
    assert load_checkpoint(SimDisk(Random(0)).mount(), "folder") is None
