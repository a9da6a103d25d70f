"""Receipts: what a member shows to say what became of a record. `topic:partition:offset:count:nonce`.

The nonce names the group's window and ends in a keyed hash over all of it and the topic's id, so nobody can make one,
and one of a deleted topic is void. Nothing is kept per receipt: the ledger knows which delivery counts.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import NamedTuple

from goqueue.model.errors import ReceiptNotFound

_MAC_BYTES = 12
_LENGTH_MAX = 600


class Receipt(NamedTuple):
    topic: str
    partition: int
    offset: int
    deliveries: int
    group: int  # the window's number
    incarnation: int


class Receipts:
    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=_MAC_BYTES)

    def make(self, topic_id: int, receipt: Receipt) -> str:
        topic, partition, offset, deliveries, group, incarnation = receipt
        text = f"{topic}:{partition}:{offset}:{deliveries}:{group:x}.{incarnation:x}"
        return f"{text}.{self._mac(topic_id, text)}"

    def read(self, text: str) -> tuple[Receipt, str]:
        """What a receipt says, and its proof for `check`: the topic's id is not in it."""
        if len(text) > _LENGTH_MAX:
            raise _unknown(text)
        try:
            topic, partition, offset, deliveries, nonce = text.split(":")
            group, incarnation, proof = nonce.split(".")
            receipt = Receipt(
                topic, int(partition), int(offset), int(deliveries), int(group, 16), int(incarnation, 16)
            )
        except ValueError:
            raise _unknown(text) from None
        return receipt, proof

    def check(self, topic_id: int, text: str, proof: str) -> None:
        expected = self._mac(topic_id, text[: -len(proof) - 1])
        if not proof.isascii() or not hmac.compare_digest(expected, proof):
            raise _unknown(text)

    def _mac(self, topic_id: int, text: str) -> str:
        keyed = self._keyed.copy()
        keyed.update(f"{topic_id}:{text}".encode())
        return keyed.hexdigest()


def _unknown(text: str) -> ReceiptNotFound:
    return ReceiptNotFound(
        f"{text[:_LENGTH_MAX]!r} is not a receipt of this broker; use the receipt_handle that came with the message",
        receipt_handle=text[:_LENGTH_MAX],
    )
