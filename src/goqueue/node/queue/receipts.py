"""Receipts: what a member shows to say what became of a record. `topic:partition:offset:count:nonce`.

The nonce names the group's window and ends in a proof: a part of a keyed hash over the topic's id and all the rest, so
nobody can make one, and one of a deleted topic is void. Nothing is kept per receipt: the ledger knows which delivery
counts. Neighbours share a hash and each has its own part of it, since a poll gives neighbours and an ack names them.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from goqueue.model.errors import ReceiptNotFound

_PROOF_LENGTH: Final = 24  # hexadecimal digits
_PROOFS_PER_HASH: Final = 5
_LENGTH_MAX: Final = 600


class Issue(NamedTuple):
    """Who gave a receipt: a group's window on a partition, as it was between two seeks."""

    topic: str
    partition: int
    group: int  # the window's number
    incarnation: int


class Receipt(NamedTuple):
    text: str
    issue: str  # as it is written, for `read_issue`
    offset: int
    deliveries: int


class Issuer:
    """Writes the receipts of one window, and knows them again."""

    def __init__(self, keyed: blake2b, topic_id: int, issue: Issue) -> None:
        topic, partition, group, incarnation = issue
        self._keyed = keyed.copy()
        self._keyed.update(f"{topic_id}:{partition}:{group}:{incarnation}:".encode())
        self._head = f"{topic}:{partition}:"
        self._tail = f":{group:x}.{incarnation:x}."

    def make(self, deliveries: Iterable[tuple[int, int]]) -> list[str]:
        """For each delivery: of which offset, and the how manieth of it that is."""
        head, tail = self._head, self._tail
        made: list[str] = []
        hashed, proofs = (-1, 0), ""
        for offset, count in deliveries:
            block, at = divmod(offset, _PROOFS_PER_HASH)
            if hashed != (block, count):
                hashed, proofs = (block, count), self._hash(block, count)
            proof = proofs[at * _PROOF_LENGTH : (at + 1) * _PROOF_LENGTH]
            made.append(f"{head}{offset}:{count}{tail}{proof}")
        return made

    def refusals(self, receipts: Sequence[Receipt]) -> dict[str, ReceiptNotFound]:
        """Those that were not made here, and why."""
        made = self.make([(offset, deliveries) for _, _, offset, deliveries in receipts])
        if hmac.compare_digest("".join(made), "".join([one.text for one in receipts])):
            return {}
        return {
            one.text: _unknown(one.text)
            for one, genuine in zip(receipts, made, strict=True)
            if not hmac.compare_digest(genuine, one.text)
        }

    def _hash(self, block: int, count: int) -> str:
        keyed = self._keyed.copy()
        keyed.update(f"{block}:{count}".encode())
        return keyed.hexdigest()


class Receipts:
    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=_PROOF_LENGTH // 2 * _PROOFS_PER_HASH)

    def issuer(self, topic_id: int, issue: Issue) -> Issuer:
        return Issuer(self._keyed, topic_id, issue)


def read_receipt(text: str) -> Receipt:
    """What a receipt says. It is not checked yet: that takes the issuer."""
    if len(text) > _LENGTH_MAX or not text.isascii():
        raise _unknown(text)
    try:
        place, offset, deliveries, nonce = text.rsplit(":", 3)
        return Receipt(text, f"{place}:{nonce[:-_PROOF_LENGTH]}", int(offset), int(deliveries))
    except ValueError:
        raise _unknown(text) from None


def read_issue(text: str) -> Issue | None:
    """Of a receipt; None if it makes no sense."""
    try:
        topic, partition, nonce = text.split(":")
        group, incarnation, _ = nonce.split(".")
        return Issue(topic, int(partition), int(group, 16), int(incarnation, 16))
    except ValueError:
        return None


def _unknown(text: str) -> ReceiptNotFound:
    return ReceiptNotFound(
        f"{text[:_LENGTH_MAX]!r} is not a receipt of this broker; use the receipt_handle that came with the message",
        receipt_handle=text[:_LENGTH_MAX],
    )
