"""Where a broker listens, once it does."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.cli.config_keys import Address


class Listening(NamedTuple):
    http: Address
    kafka: Address
    cluster: Address | None = None  # of a node that is not alone

    def addresses(self) -> list[Address]:
        return [address for address in self if address is not None]

    def __str__(self) -> str:
        text = f"http={self.http} kafka={self.kafka}"
        return text if self.cluster is None else f"{text} cluster={self.cluster}"
