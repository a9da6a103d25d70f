"""The segment files of a partition, for jobs that share work out by bytes and cut it where files end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from goqueue.pipeline.backup.tree import open_tree
from goqueue.pipeline.files.storage import Storage
from goqueue.pipeline.files.view import PartitionView, open_view, steadily
from goqueue.pipeline.span import Place


class SegmentFile(NamedTuple):
    """Offsets [base_offset, end_offset) in a file of `size` bytes."""

    base_offset: int
    end_offset: int
    size: int
    path: str
    max_timestamp: int  # of its records; -1: it has none


def partition_files(path: str, place: Place) -> list[SegmentFile]:
    """In order and without a gap, as far as the log may be read; none for a partition without records."""
    storage = open_tree(path)
    is_held = storage.is_held()

    def files_in(view: PartitionView) -> list[SegmentFile]:
        return list(_files(storage, view))

    return steadily(storage, lambda: open_view(storage, place, is_live=is_held), files_in)


def _files(storage: Storage, view: PartitionView) -> Iterator[SegmentFile]:
    for segment in view.log.segments:
        end = min(segment.end_offset, view.high_watermark)
        if segment.base_offset < end and end > view.earliest:
            at = storage.locate(f"{view.folder}/{view.files[segment.base_offset].name}")
            yield SegmentFile(segment.base_offset, end, segment.size, at, segment.max_timestamp)
        if segment is not view.log.segments[-1]:
            segment.forget_index()
