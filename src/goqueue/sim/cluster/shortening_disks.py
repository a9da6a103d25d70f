"""What is on the disks of a cluster for sure, of logs that lose segments while one looks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.log.batch import decode_batch
from goqueue.log.checkpoint import FILE_NAME, Checkpoint
from goqueue.log.swap import SWAP_NAME
from goqueue.node.folder import partition_folder
from goqueue.sim.cluster import disks
from goqueue.sim.cluster.shortening_history import Replica, Stored, is_tombstone, key_of, text_of
from goqueue.sim.disk import SimDisk
from goqueue.sim.kafka.history import Part
from goqueue.sim.platter import DirNode, FileNode

_LOG, _RESET = ".log", ".reset"


def durable_replica(disk: SimDisk, part: Part) -> Replica:
    """As the next start would have it after a power cut now: what compaction has put beside the log counts, and so does a
    beginning that was decided."""
    names = _names(disk, part)
    reset = next((name for name in names if name.endswith(_RESET)), None)
    if reset is not None:
        start = int(reset.removesuffix(_RESET))
        return Replica(start, start, [])
    files = {int(name.removesuffix(_LOG)): node for name, node in names.items() if name.endswith(_LOG)}
    for name, node in names.items():
        match = SWAP_NAME.fullmatch(name)
        if match:
            base, end = int(match[1]), int(match[2])
            files = {each: file for each, file in files.items() if not base <= each < end} | {base: node}
    batches = [batch for _, file in sorted(files.items()) for batch in _batches(file)]
    checkpoint = _checkpoint(names)
    first = batches[0].base_offset if batches else 0
    log_start = max(first, checkpoint.log_start if checkpoint else 0)
    return Replica(log_start, batches[-1].end if batches else log_start, batches)


def has(disk: SimDisk, part: Part, base_offset: int, values: tuple[str, ...], *, is_compacted: bool) -> bool:
    """Whether a batch was stored there for sure, be it that what is before the start or superseded is gone since."""
    replica = durable_replica(disk, part)
    if base_offset + len(values) > replica.end:
        return False
    stored = replica.values()
    for offset, value in enumerate(values, base_offset):
        found = stored.get(offset)
        if found is None and offset >= replica.log_start:
            if not is_compacted or not may_be_gone(offset, value, stored):
                return False
        elif found is not None and found != value:
            return False
    return True


def may_be_gone(offset: int, value: str, others: Mapping[int, str]) -> bool:
    """Whether compaction may have removed it: a later one has its key, or it only says that something is deleted."""
    return is_tombstone(value) or any(
        at > offset and key_of(other) == key_of(value) for at, other in others.items()
    )


def _names(disk: SimDisk, part: Part) -> dict[str, FileNode]:
    node: DirNode | FileNode | None = disk.platter.root
    for name in partition_folder(*part).split("/"):
        node = node.durable.get(name) if isinstance(node, DirNode) else None
    if not isinstance(node, DirNode):
        return {}
    return {name: file for name, file in sorted(node.durable.items()) if isinstance(file, FileNode)}


def _batches(file: FileNode) -> list[Stored]:
    found = []
    for header, data in disks._sound(file):
        records = () if header.is_control else decode_batch(data, header)
        values = {record.offset: text_of(record.key, record.value) for record in records}
        found.append(Stored(header.base_offset, header.end_offset, header.leader_epoch, data, values))
    return found


def _checkpoint(names: Mapping[str, FileNode]) -> Checkpoint | None:
    file = names.get(FILE_NAME)
    _, _, body = bytes(file.durable).partition(b"\n") if file is not None else (b"", b"", b"")
    return msgspec.json.decode(body, type=Checkpoint) if body else None
