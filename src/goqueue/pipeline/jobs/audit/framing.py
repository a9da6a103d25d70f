"""What may stand before a serialized value: the frame of Confluent's serializers, or Avro's single-object marker."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

CONFLUENT_BYTES: Final = 5  # 0, then the schema's id as four bytes
SINGLE_OBJECT_BYTES: Final = 10  # C3 01, then the schema's fingerprint as eight bytes
SINGLE_OBJECT_MARKER: Final = b"\xc3\x01"


class Framing(StrEnum):
    """How Avro values begin."""

    AUTO = "auto"
    CONFLUENT = "confluent"
    SINGLE_OBJECT = "single-object"
    BARE = "bare"


def has_confluent_frame(value: bytes | memoryview) -> bool:
    return len(value) >= CONFLUENT_BYTES and value[0] == 0
