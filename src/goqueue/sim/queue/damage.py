"""Bits of ledgers and topics are turned while there is no broker. What the batch held that was hit may come again (a
ledger) or is gone (a topic); nothing else may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from goqueue.core.lease.events import (
    REDRIVE,
    Closed,
    Event,
    Extended,
    Leased,
    Moved,
    Moving,
    Opened,
    Postponed,
    ProducerNamed,
    Settled,
    Sought,
    Trimmed,
    WindowSaved,
    decode,
    offsets_of,
)
from goqueue.log.batch import decode_batch
from goqueue.log.scan import Found, Scanner
from goqueue.sim.disk import SimDisk
from goqueue.sim.queue.history import Place, QueueHistory

_LEDGER = "__ledger."
_NEWEST = 8


class Flipping:
    def __init__(self, disk: SimDisk, history: QueueHistory, rng: Random) -> None:
        self._disk = disk
        self._history = history
        self._rng = rng
        self._folders: set[str] = set()

    def flip(self, topic: str) -> str:
        """One bit of some batch; what it was of."""
        durable = {
            path: len(node.durable)
            for path, node in sorted(self._disk.platter.durable_files().items())
            if path.startswith(f"logs/{topic}/") and path.endswith(".log")
        }
        paths = [path for path in durable if self._disk.snapshot().get(path)]
        batches = [
            (path, batch)
            for path in paths
            for batch in self._batches(path)
            if batch.position + batch.header.size <= durable[path]
        ]
        if not topic.startswith(_LEDGER):
            batches = _but_the_last(batches)
        if not batches:
            return ""
        # What came last is what is still under way; the rest is mostly finished.
        path, batch = self._rng.choice(batches[-_NEWEST:] if self._rng.random() < 0.5 else batches)
        _, _, index, _ = path.split("/")
        if topic.startswith(_LEDGER):
            events = [event for one in paths if f"/{index}/" in one for event in self._events(one)]
            self._note_events(topic.removeprefix(_LEDGER), int(index), batch, _names(events))
        else:
            self._history.damage.values.update(_values(batch))
        start, size = 8 * batch.position, 8 * batch.header.size
        self._disk.flip_bit(path, start + self._rng.randrange(size))
        self._folders.add(path.rsplit("/", 1)[0])
        return f"+{topic}"

    def is_known(self, problem: str) -> bool:
        """What an offline check says of it."""
        return any(folder in problem for folder in self._folders)

    def _batches(self, path: str) -> list[Found]:
        file = self._disk.mount().open(path)
        base = int(path.rsplit("/", 1)[1].removesuffix(".log"))
        found = Scanner(file, file.size(), check_crc=True).scan(0, base)
        return [item for item in found if isinstance(item, Found)]

    def _events(self, path: str) -> Iterator[Event]:
        for batch in self._batches(path):
            yield from _decoded(batch)

    def _note_events(self, topic: str, index: int, batch: Found, names: dict[int, str]) -> None:
        damage = self._history.damage
        for event in _decoded(batch):
            number = getattr(event, "group", None)
            group = names.get(number, "") if isinstance(number, int) else ""
            offsets = _offsets(event)
            if group:
                damage.touched.add((group, topic, index))
            if offsets is None:
                damage.lost_places.add((group, topic, index))
                continue
            damage.doubted.update((group, Place(topic, index, offset)) for offset in offsets)


def _but_the_last(batches: list[tuple[str, Found]]) -> list[tuple[str, Found]]:
    """Of each partition: it would pass for torn, and another record would come in its place. The history goes by places."""
    last = {path.rsplit("/", 1)[0]: batch for path, batch in batches}
    return [(path, batch) for path, batch in batches if last[path.rsplit("/", 1)[0]] is not batch]


def _offsets(event: Event) -> Iterable[int] | None:
    """The records that an event speaks of; None if it says where a group is."""
    match event:
        case Leased():
            seen = [offset for one in event.seen for offset in range(one.start, one.start + one.length)]
            return seen + [offset for offset, _, _ in event.held]
        case Settled() | Extended():
            return offsets_of(event.runs)
        case Postponed():
            return [offset for offset, _ in event.items]
        case Moving() if event.group != REDRIVE:
            return [letter.offset for letter in event.letters]
        case Moved():
            return []  # it is found out again
        case Opened() | Sought() | Closed() | Trimmed() | ProducerNamed():
            return None
        case _:
            return []  # of a snapshot: the one before it says the same


def _names(events: Iterable[Event]) -> dict[int, str]:
    """Of the groups, by their numbers."""
    return {event.group: event.group_id for event in events if isinstance(event, Opened | WindowSaved)}


def _decoded(batch: Found) -> list[Event]:
    return [decode(record.value or b"") for record in decode_batch(batch.data, batch.header)]


def _values(batch: Found) -> list[str]:
    if batch.header.is_control:
        return []
    return [(record.value or b"").decode() for record in decode_batch(batch.data, batch.header)]
