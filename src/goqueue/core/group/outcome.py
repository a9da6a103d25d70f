"""What comes of a command: events to write, and answers to give once they are durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

from goqueue.core.group.commands import Reply
from goqueue.core.group.events import Event
from goqueue.model.errors import GoQueueError

Ticket = NewType("Ticket", int)  # the caller's handle on a call that may be answered later
Answer = tuple[Ticket, Reply | GoQueueError]


@dataclass(slots=True)
class Outcome:
    events: list[Event] = field(
        default_factory=list
    )  # to be written, in one batch, before any reply goes out
    replies: list[Answer] = field(default_factory=list)  # of this call and of parked ones that it released
