"""What producers and workers saw happen, and when: events of traces, as docs/format/traces.md has them.

They are taken down in memory, so that writing them costs the shop nothing, and written as JSON lines at the end. An answer may reach the
producer after a worker has the order already: whoever has it proves that it was stored, so that is the time which then counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

TOPIC: Final = "orders"
_STORED: Final = ("publish.persisted", "delay.scheduled")


class Event(NamedTuple):
    trace_id: str
    span_id: str
    name: str
    time_ns: int
    writer: str  # whose file it stands in
    partition: int | None = None
    offset: int | None = None
    group: str | None = None


class Diary:
    """For any number of threads."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def note(self, events: Iterable[Event]) -> None:
        with self._lock:
            self._events.extend(events)

    def events(self) -> list[Event]:
        with self._lock:
            return in_causal_order(self._events)

    def write(self, folder: Path) -> int:
        """One file for each who wrote; the number of lines."""
        folder.mkdir()
        lines: dict[str, list[bytes]] = {}
        events = self.events()
        for event in events:
            lines.setdefault(event.writer, []).append(msgspec.json.encode(_line(event)))
        for writer, texts in lines.items():
            (folder / f"{writer}.jsonl").write_bytes(b"\n".join(texts) + b"\n")
        return len(events)


def in_causal_order(events: Sequence[Event]) -> list[Event]:
    """Nothing is stored later than it is seen."""
    seen: dict[str, int] = {}
    for event in events:
        if event.name in ("consume.fetched", "delay.ready"):
            seen[event.trace_id] = min(event.time_ns, seen.get(event.trace_id, event.time_ns))
    return [
        event._replace(time_ns=min(event.time_ns, seen.get(event.trace_id, event.time_ns)))
        if event.name in _STORED
        else event
        for event in events
    ]


def _line(event: Event) -> dict[str, object]:
    line: dict[str, object] = {
        "trace_id": event.trace_id,
        "span_id": event.span_id,
        "name": event.name,
        "topic": TOPIC,
        "time_unix_nano": event.time_ns,
    }
    if event.offset is not None:
        line |= {"partition": event.partition, "offset": event.offset}
    return line if event.group is None else line | {"group": event.group}
