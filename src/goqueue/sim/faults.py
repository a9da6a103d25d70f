"""What goes wrong in a run, decided by the seed."""

from __future__ import annotations

import errno
from random import Random

from goqueue.log.checkpoint import Checkpoint, load_checkpoint
from goqueue.log.disk import Disk
from goqueue.log.scan import Found, Scanner
from goqueue.node.folder import LOGS, partition_folder
from goqueue.sim.checkers import FlippedBatch
from goqueue.sim.disk import SimDisk


def inject(disk: SimDisk, rng: Random) -> str:
    """Arm one fault for the coming life, or none; its name."""
    fault = rng.choice(("none", "none", "crash", "crash", "sync", "append", "full", "slow"))
    match fault:
        case "crash":
            disk.crash_after(rng.randint(1, 200))
        case "sync":
            disk.fail_next("sync", error=errno.EIO, after=rng.randint(0, 20))
        case "append":
            disk.fail_next("append", error=rng.choice((errno.EIO, errno.ENOSPC)), after=rng.randint(0, 40))
        case "full":
            total, free = disk.usage()
            disk.capacity_bytes = total - free + rng.randint(0, 30_000)
        case "slow":
            disk.slow("sync", rng.uniform(0.1, 3.0))
    return fault


def flip_bit(disk: SimDisk, rng: Random, topic: str) -> FlippedBatch | None:
    """Turn one bit of a segment, an index or a checkpoint of a topic while the broker is down; the batch that
    it hit, if it hit one."""
    files = {
        path: content for path, content in disk.snapshot().items() if path.startswith(f"{LOGS}/{topic}/")
    }
    candidates = [path for path, content in files.items() if content]
    if not candidates:
        return None
    path = rng.choice(candidates)
    bit = rng.randrange(8 * len(files[path]))
    hit = _batch_at(disk.mount(), path, bit // 8) if path.endswith(".log") else None
    disk.flip_bit(path, bit)
    return hit


def _batch_at(disk: Disk, path: str, position: int) -> FlippedBatch | None:
    """The sound batch that covers a byte."""
    _, topic, partition, name = path.split("/")
    base = int(name.removesuffix(".log"))
    checkpoint = load_checkpoint(disk, partition_folder(topic, int(partition)))
    file = disk.open(path)
    for item in Scanner(file, file.size(), check_crc=True).scan(0, base):
        if isinstance(item, Found) and item.position <= position < item.position + item.header.size:
            is_checked = not isinstance(checkpoint, Checkpoint) or (base, item.position) >= (
                checkpoint.recovery_segment,
                checkpoint.recovery_position,
            )
            header = item.header
            return FlippedBatch(topic, int(partition), header.base_offset, header.end_offset, is_checked)
    return None
