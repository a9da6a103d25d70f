"""The producer routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.call import Call
from goqueue.api.http.query import NoQuery


class InitProducer(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say yet: an empty object."""


class ProducerIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    producer_id: Annotated[int, Meta(ge=0)]
    epoch: Annotated[int, Meta(ge=0)]


async def init_producer(call: Call[NoQuery, InitProducer]) -> ProducerIdentity:
    producer_id, epoch = await call.node.producers.init()
    return ProducerIdentity(producer_id, epoch)
