"""Where a broker listens, once it does."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.cli.config_keys import Address


class Listening(NamedTuple):
    http: Address
    kafka: Address
