"""What is on the disks of a cluster for sure: read past the nodes, from what a power cut would leave."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.log.batch import HEADER_BYTES, crc_matches, decode_batch, read_header
from goqueue.node.folder import partition_folder
from goqueue.sim.cluster.history import FinalBatch
from goqueue.sim.disk import SimDisk
from goqueue.sim.kafka.history import Part
from goqueue.sim.platter import DirNode, FileNode


def durable_batches(disk: SimDisk, part: Part, *, end: int | None = None) -> dict[int, FinalBatch]:
    """By base offset, up to the first that is torn."""
    found: dict[int, FinalBatch] = {}
    for content in _segments(disk, part):
        at = 0
        while len(content) - at >= HEADER_BYTES:
            header = read_header(content, at)
            batch = content[at : at + header.size]
            if header.size < HEADER_BYTES or len(batch) < header.size or not crc_matches(batch, 0, header):
                break
            if end is None or header.end_offset <= end:
                values = {
                    record.offset: (record.value or b"").decode() for record in decode_batch(batch, header)
                }
                found[header.base_offset] = FinalBatch(header.leader_epoch, batch, values)
            at += header.size
    return found


def holds(disk: SimDisk, part: Part, base_offset: int, values: tuple[str, ...]) -> bool:
    """Whether a batch would survive a power cut."""
    batch = durable_batches(disk, part).get(base_offset)
    return batch is not None and tuple(batch.values.values()) == values


def _segments(disk: SimDisk, part: Part) -> Iterator[bytes]:
    node: DirNode | FileNode | None = disk.platter.root
    for name in partition_folder(*part).split("/"):
        node = node.durable.get(name) if isinstance(node, DirNode) else None
    if isinstance(node, DirNode):
        for name in sorted(node.durable):
            file = node.durable[name]
            if name.endswith(".log") and isinstance(file, FileNode):
                yield bytes(file.durable)
