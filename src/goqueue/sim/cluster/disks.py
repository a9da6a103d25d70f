"""What is on the disks of a cluster for sure: read past the nodes, from what a power cut would leave.

A bit that has rotted and that no node has met yet is read as it was: whoever meets it fetches what is damaged from another.
"""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.log.batch import HEADER_BYTES, BatchHeader, crc_matches, decode_batch, read_header
from goqueue.node.folder import partition_folder
from goqueue.sim.cluster.history import FinalBatch
from goqueue.sim.disk import SimDisk
from goqueue.sim.kafka.history import Part
from goqueue.sim.platter import DirNode, FileNode


def durable_batches(disk: SimDisk, part: Part, *, end: int | None = None) -> dict[int, FinalBatch]:
    """By base offset, up to the first that is torn."""
    found: dict[int, FinalBatch] = {}
    for _, file in _segments(disk, part):
        for header, batch in _sound(file):
            if end is None or header.end_offset <= end:
                records = () if header.is_control else decode_batch(batch, header)
                values = {record.offset: (record.value or b"").decode() for record in records}
                found[header.base_offset] = FinalBatch(header.leader_epoch, batch, values)
    return found


def holds(disk: SimDisk, part: Part, base_offset: int, values: tuple[str, ...]) -> bool:
    """Whether a batch would survive a power cut. Looks at its segment only: what is before that was looked at in its own time."""
    segments = [file for base, file in _segments(disk, part) if base <= base_offset]
    if not segments:
        return False
    for header, batch in _sound(segments[-1]):
        if header.base_offset == base_offset:
            records = decode_batch(batch, header)
            return tuple((record.value or b"").decode() for record in records) == values
    return False


def _sound(file: FileNode) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a segment, up to the first that is torn."""
    content = memoryview(file.before_rot() if file.rotten else file.durable)
    at, size = 0, len(content)
    while size - at >= HEADER_BYTES:
        header = read_header(content, at)
        end = at + header.size
        if header.size < HEADER_BYTES or end > size or not crc_matches(content, at, header):
            return
        yield header, bytes(content[at:end])
        at = end


def _segments(disk: SimDisk, part: Part) -> Iterator[tuple[int, FileNode]]:
    """In their order, by base offset."""
    node: DirNode | FileNode | None = disk.platter.root
    for name in partition_folder(*part).split("/"):
        node = node.durable.get(name) if isinstance(node, DirNode) else None
    if isinstance(node, DirNode):
        for name in sorted(node.durable):
            file = node.durable[name]
            if name.endswith(".log") and isinstance(file, FileNode):
                yield int(name.removesuffix(".log")), file
