"""What nodes say to each other about queues, as MessagePack in one request of Kafka's framing (`ask_queue`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from goqueue.node.queue.ports import LedgerAction, LedgerWant
from goqueue.node.scaling.ports import Held, HeldCall, Part, Silence, SilenceCall

APPEND: Final = "append"
SETTINGS: Final = "settings"
LEDGERS: Final = "ledgers"
LEFT: Final = "left"
PART: Final = "part"
SILENCE: Final = "silence"
HELD: Final = "held"


class AppendCall(Struct, frozen=True):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    batch: bytes | None


class AppendTold(Struct, frozen=True):
    newest_sequence: int | None


class SettingsCall(Struct, frozen=True):
    group_id: str


class SettingsTold(Struct, frozen=True):
    settings: dict[str, str]


class LeftCall(Struct, frozen=True):
    group_id: str
    member_id: str


class LeftTold(Struct, frozen=True):
    """It is done."""


class LedgersCall(Struct, frozen=True):
    group_id: str
    action: LedgerAction
    wants: Sequence[LedgerWant]


class LedgerTold(Struct, frozen=True):
    error: str | None = None  # the code
    sentence: str = ""
    start: int | None = None
    leader_epoch: int = -1
    lag: int | None = None
    is_moving: bool = False


class LedgersTold(Struct, frozen=True):
    """In the order of the wants."""

    answers: list[LedgerTold]


class PartTold(Struct, frozen=True):
    offset: int


ENCODER: Final = msgspec.msgpack.Encoder()
APPEND_CALLS: Final = msgspec.msgpack.Decoder(AppendCall)
APPENDS_TOLD: Final = msgspec.msgpack.Decoder(AppendTold)
PARTS: Final = msgspec.msgpack.Decoder(Part)
PARTS_TOLD: Final = msgspec.msgpack.Decoder(PartTold)
SILENCE_CALLS: Final = msgspec.msgpack.Decoder(SilenceCall)
SILENCES: Final = msgspec.msgpack.Decoder(Silence)
HELD_CALLS: Final = msgspec.msgpack.Decoder(HeldCall)
HELD_TOLD: Final = msgspec.msgpack.Decoder(Held)
SETTINGS_CALLS: Final = msgspec.msgpack.Decoder(SettingsCall)
SETTINGS_TOLD: Final = msgspec.msgpack.Decoder(SettingsTold)
LEFT_CALLS: Final = msgspec.msgpack.Decoder(LeftCall)
LEFT_TOLD: Final = msgspec.msgpack.Decoder(LeftTold)
LEDGERS_CALLS: Final = msgspec.msgpack.Decoder(LedgersCall)
LEDGERS_TOLD: Final = msgspec.msgpack.Decoder(LedgersTold)
