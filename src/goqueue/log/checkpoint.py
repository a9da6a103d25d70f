"""What a partition knows to be safe: one small file, replaced atomically (docs/format/checkpoint.md).

Everything before the recovery point is on disk and was sound when it was written, so recovery starts there.
After a clean stop that is the end of the log, and there is nothing to scan. The file is text behind a line
with its checksum; one that does not match is reported, and the log is scanned from its beginning instead.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from goqueue.log.disk import Disk, read_file, replace_file

FILE_NAME = "checkpoint"
NO_STATE = msgspec.Raw(b"null")
_VERSION = b"goqueue-checkpoint 2 "
_VERSION_BEFORE = b"goqueue-checkpoint 1 "  # without transactions


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log_start: int
    high_watermark: int
    clean_end: int
    recovery_offset: int
    recovery_segment: int
    recovery_position: int
    recovery_max_timestamp: int  # of the records in that segment before that position
    epoch_latest: int
    epochs: list[tuple[int, int]]
    owner: msgspec.Raw  # the state that the log's owner wants back, as of the recovery offset
    # The entries of the index of aborted transactions from the log start to the recovery offset.
    aborted_count: int = 0
    aborted_crc: int = 0

    @property
    def needs_its_segment(self) -> bool:
        """Whether the recovery segment holds anything that is still part of the log. One that does not may be gone."""
        return self.recovery_position > 0 and self.recovery_offset > self.log_start


def save_checkpoint(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    body = msgspec.json.encode(checkpoint)
    replace_file(disk, f"{folder}/{FILE_NAME}", _VERSION + b"%08x\n" % crc32c(body) + body + b"\n")


def load_checkpoint(disk: Disk, folder: str) -> Checkpoint | str | None:
    """The checkpoint, None where there is none, or what is wrong with it."""
    content = read_file(disk, f"{folder}/{FILE_NAME}")
    if content is None:
        return None
    first, _, body = content.partition(b"\n")
    body = body.removesuffix(b"\n")
    checksum = b"%08x" % crc32c(body)
    if first not in (_VERSION + checksum, _VERSION_BEFORE + checksum):
        return "the checkpoint's checksum does not match"
    try:
        return msgspec.json.decode(body, type=Checkpoint)
    except msgspec.DecodeError as error:
        return f"the checkpoint cannot be read: {error}"
