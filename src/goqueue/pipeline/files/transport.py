"""Topics from segment files: a stopped broker's folder, a backup, a copy, or a running broker's disk.

The rows are those that the broker would give. Of a running broker's folder only what its last checkpoint covers is read
(`view`); a file that retention removes or compaction replaces meanwhile is looked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

from pyarrow import fs

from goqueue.log.batch import decode_batch
from goqueue.log.scan import Found
from goqueue.log.segment import Segment
from goqueue.model.errors import DataCorrupt
from goqueue.pipeline.backup.tree import open_tree
from goqueue.pipeline.errors import DataLoss, OptionError, PipelineError
from goqueue.pipeline.files.catalogue import partition_exists, topics_in
from goqueue.pipeline.files.reading import Lost, Piece, markers_in, pieces
from goqueue.pipeline.files.view import (
    ATTEMPT_COUNT_MAX,
    PartitionView,
    open_view,
    steadily,
    unreadable,
)
from goqueue.pipeline.span import Aborted, Chunk, Place, Span

logger = logging.getLogger(__name__)

OnDamage = Literal["fail", "skip"]


class FilesTransport:
    """`path` holds `logs/{topic}/{partition}/`: a local path, a URI that pyarrow knows, or a path in a given filesystem.

    What is damaged or missing raises `DataLoss`; with `on_damage="skip"` exactly those offsets are left out, logged and
    counted in `skipped_offset_count`."""

    def __init__(
        self, path: str, *, on_damage: OnDamage = "fail", filesystem: fs.FileSystem | None = None
    ) -> None:
        if on_damage not in ("fail", "skip"):
            raise OptionError(f'on_damage is "fail" or "skip", not {on_damage!r}')
        self._storage = open_tree(path, filesystem)
        self._skips = on_damage == "skip"
        self.skipped_offset_count = 0

    def topics(self) -> dict[str, int]:
        return topics_in(self._storage, skips_damage=self._skips)

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: view.earliest for place, view in self._views(places)}

    def latest(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        return {place: self._latest(place, view, committed=committed) for place, view in self._views(places)}

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
        is_held = self._storage.is_held()
        return {
            place: steadily(
                self._storage,
                partial(self._view, place, is_held=is_held),
                partial(self._at_time, place, timestamp_ms=timestamp_ms),
            )
            for place in places
        }

    def read(self, span: Span, *, committed: bool) -> Iterator[Chunk]:
        """Batches of some MiB at a time."""
        offset, attempt_count = span.start, 0
        while offset < span.end:
            if attempt_count >= ATTEMPT_COUNT_MAX:
                raise PipelineError(
                    f"the files of {_shown(span.place)} changed {attempt_count} times while offset {offset} was read"
                )
            attempt_count += 1
            view = self._view_to(span)
            self._refuse_open(span, view, committed=committed)
            try:
                for item in pieces(view, offset, span.end, bytes_max=self._storage.piece_bytes):
                    if isinstance(item, Lost) and self._is_outdated(view):
                        break
                    yield from self._chunk(span.place, view, item, committed=committed)
                    offset, attempt_count = item.end, 0
            except OSError as error:
                if not self._is_outdated(view):
                    raise unreadable(view, error) from error

    def _chunk(
        self, place: Place, view: PartitionView, item: Piece | Lost, *, committed: bool
    ) -> Iterator[Chunk]:
        if isinstance(item, Piece):
            aborted = _aborted(view, item.start, item.end) if committed else ()
            yield Chunk(item.data, aborted, is_checked=True)
            return
        self._lose(place, item)
        if committed and (markers := markers_in(view, item.start, item.end)):
            yield Chunk(markers)

    def close(self) -> None:
        """Files are closed as soon as they have been read."""

    # ---------------------------------------------------------------- views

    def _views(self, places: Iterable[Place]) -> Iterator[tuple[Place, PartitionView]]:
        is_held = self._storage.is_held()
        for place in places:
            yield place, self._view(place, is_held=is_held)

    def _view(self, place: Place, *, is_held: bool) -> PartitionView:
        view = open_view(self._storage, place, is_live=is_held)
        if not view.listing and not partition_exists(self._storage, place):
            missing = self._storage.locate(view.folder)
            if not self._skips:
                raise DataLoss(
                    f"{missing} is not there: the topic was deleted, or that partition was not copied"
                )
            logger.warning("partition taken for empty folder=%s", missing)
        return view

    def _view_to(self, span: Span) -> PartitionView:
        """One that has the whole span, if there is one. A broker that has just started on the folder may not have saved yet
        what was seen before it did."""
        view = self._view(span.place, is_held=self._storage.is_held())
        if view.is_live and view.high_watermark < span.end:
            return self._view(span.place, is_held=False)
        return view

    def _is_outdated(self, view: PartitionView) -> bool:
        return view.is_outdated_by(self._storage.list(view.folder) or ())

    def _latest(self, place: Place, view: PartitionView, *, committed: bool) -> int:
        if view.set_aside is not None:
            sentence = (
                f"the log of {_shown(place)} ends at offset {view.log.end}, but there is a segment from "
                f"{view.set_aside} on: what lies between is gone from {self._storage.locate(view.folder)}"
            )
            if not self._skips:
                raise DataLoss(sentence)
            logger.warning("segments left out folder=%s from=%d", view.folder, view.set_aside)
        if view.lost_from is not None and not self._skips:
            # Whether a transaction had ended is lost, too: let the reader run into it.
            return view.high_watermark
        return view.latest(committed=committed)

    # ---------------------------------------------------------------- time

    def _at_time(self, place: Place, view: PartitionView, timestamp_ms: int) -> int | None:
        for segment in view.log.segments:
            if segment.end_offset <= view.earliest:
                continue
            try:
                found = segment.first_at_or_after(timestamp_ms, from_offset=view.earliest)
            except DataCorrupt as error:
                if not self._skips:
                    raise DataLoss(
                        f"the time in {_shown(place)} cannot be found: {error.sentence}"
                    ) from error
                found = _first_sound(segment, timestamp_ms, view.earliest)
            if segment is not view.log.segments[-1]:
                segment.forget_index()
            if found is not None:
                return found[0] if found[0] < view.high_watermark else None
        return None

    # ---------------------------------------------------------------- losses

    def _lose(self, place: Place, lost: Lost) -> None:
        file = self._storage.locate(lost.file)
        if not self._skips:
            raise DataLoss(
                f"offsets {lost.start} to {lost.end} (exclusive) of {_shown(place)} are gone: {file} at byte "
                f"{lost.position}: {lost.reason}; skip what is damaged to read the rest"
            )
        self.skipped_offset_count += lost.end - lost.start
        logger.warning(
            "offsets skipped topic=%s partition=%d start=%d end=%d file=%s position=%d reason=%s",
            *place,
            lost.start,
            lost.end,
            file,
            lost.position,
            lost.reason,
        )

    def _refuse_open(self, span: Span, view: PartitionView, *, committed: bool) -> None:
        """A span of committed records is planned up to the last stable offset, which never goes back."""
        latest = self._latest(span.place, view, committed=committed)
        if latest < min(span.end, view.high_watermark):
            raise PipelineError(
                f"committed records of {_shown(span.place)} were asked for up to offset {span.end}; a transaction is "
                f"open since {latest}"
            )


def _shown(place: Place) -> str:
    return f"{place.topic}-{place.partition}"


def _aborted(view: PartitionView, start: int, end: int) -> tuple[Aborted, ...]:
    entries = view.log.aborted.overlapping(start, end)
    return tuple(Aborted(entry.producer_id, entry.first_offset) for entry in entries)


def _first_sound(segment: Segment, timestamp_ms: int, from_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that is not older, past whatever is damaged."""
    for item in segment.scan(0, segment.base_offset, check_crc=True):
        if isinstance(item, Found) and item.header.max_timestamp >= timestamp_ms:
            for record in decode_batch(item.data, item.header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                    return record.offset, record.timestamp_ms
    return None
