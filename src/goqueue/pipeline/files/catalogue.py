"""Which topics a folder has: those that have a folder of their own, with what the broker's catalogue says of them.

The folders alone would nearly do. But a topic whose deletion was decided in the moment of a crash still has its files, and
a partition that was never written to has none: in an object store, or in a copy that leaves out empty folders, it is not
there. So the catalogue is asked where the folder holds one. A backup of some topics without it is read by its folders.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from goqueue.log.batch import HEADER_BYTES, decode_batch, read_header
from goqueue.pipeline.errors import DataLoss, OptionError
from goqueue.pipeline.files.reading import Lost, pieces
from goqueue.pipeline.files.storage import Storage
from goqueue.pipeline.files.view import LOGS, open_view
from goqueue.pipeline.span import Place

logger = logging.getLogger(__name__)

METADATA = Place("__cluster_metadata", 0)
_INTERNAL = "__"


class MetadataEvent(msgspec.Struct):
    """What the events of `__cluster_metadata` have in common (docs/format/checkpoint.md)."""

    event: str
    name: str = ""
    partition_count: int = 0
    overrides: dict[str, str] = {}


def topics_in(storage: Storage, *, skips_damage: bool) -> dict[str, int]:
    """Names to partition counts, without the broker's own."""
    entries = storage.list(LOGS)
    if entries is None:
        raise OptionError(
            f"{storage.locate(LOGS)} is not there: the path of a data folder or of a copy of one is wanted"
        )
    counts = _catalogue(storage, skips_damage=skips_damage)
    found: dict[str, int] = {}
    for entry in entries:
        if entry.is_dir and not entry.name.startswith(_INTERNAL) and counts.get(entry.name, 1):
            found[entry.name] = max(counts.get(entry.name, 0), _folder_count(storage, entry.name))
    return found


def partition_exists(storage: Storage, place: Place) -> bool:
    """Whether there is a folder for it; where folders come with their files, one for its topic."""
    is_there = storage.list(f"{LOGS}/{place.topic}/{place.partition}") is not None
    if is_there or storage.keeps_folders:
        return is_there
    return storage.list(f"{LOGS}/{place.topic}") is not None


def _folder_count(storage: Storage, topic: str) -> int:
    indexes = [
        int(entry.name)
        for entry in storage.list(f"{LOGS}/{topic}") or ()
        if entry.is_dir and entry.name.isdecimal()
    ]
    return max(indexes, default=-1) + 1


def _catalogue(storage: Storage, *, skips_damage: bool) -> dict[str, int]:
    """Partition counts by topic, as far as the catalogue knows; 0 for one that was deleted."""
    counts: dict[str, int] = {}
    for event in metadata_events(storage, skips_damage=skips_damage):
        if event.event in ("TopicCreated", "TopicGrown"):
            counts[event.name] = event.partition_count
        elif event.event == "TopicDeleted":
            counts[event.name] = 0
    return counts


def metadata_events(storage: Storage, *, skips_damage: bool) -> Iterator[MetadataEvent]:
    """What the catalogue went through; nothing where the folder has none. What a node of a cluster has forgotten of it is in a
    snapshot."""
    yield from _snapshot(storage)
    view = open_view(storage, METADATA, is_live=False)
    for piece in pieces(view, view.earliest, view.high_watermark, bytes_max=storage.piece_bytes):
        if isinstance(piece, Lost):
            if skips_damage:  # the folders are left
                logger.warning(
                    "catalogue damaged file=%s position=%d", storage.locate(piece.file), piece.position
                )
                continue
            raise DataLoss(
                f"the catalogue cannot be read: {storage.locate(piece.file)} at byte {piece.position}: {piece.reason}; "
                f"take {storage.locate(f'{LOGS}/{METADATA.topic}')} away to read topics by their folders"
            )
        yield from _events(piece.data)


def _snapshot(storage: Storage) -> list[MetadataEvent]:
    folder = f"{LOGS}/{METADATA.topic}/{METADATA.partition}"
    names = [entry.name for entry in storage.list(folder) or () if entry.name.endswith(".snapshot")]
    if not names:
        return []
    file = storage.open(f"{folder}/{max(names)}")
    _, _, body = file.read(0, file.size()).partition(b"\n")
    saved = msgspec.json.decode(body, type=_Saved)
    return msgspec.json.decode(saved.payload, type=_SavedCatalogue).topics


class _Saved(msgspec.Struct):
    """docs/format/metadata.md"""

    payload: bytes


class _SavedCatalogue(msgspec.Struct):
    topics: list[MetadataEvent]


def _events(data: memoryview) -> list[MetadataEvent]:
    """One record is one decision, of one event or more; those with a key are about the quorum itself."""
    events: list[MetadataEvent] = []
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = read_header(data, position)
        batch = data[position : position + header.size]
        for record in decode_batch(batch, header):
            if record.value is not None and record.key is None and not header.is_control:
                found = msgspec.json.decode(record.value, type=MetadataEvent | list[MetadataEvent])
                events += found if isinstance(found, list) else [found]
        position += header.size
    return events
