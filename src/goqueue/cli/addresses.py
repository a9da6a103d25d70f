"""Where something listens, and what a node may be called."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,248}")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_everywhere(self) -> bool:
        """All addresses of the machine: one can listen there, but nobody can be told to connect to it."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host) != bracketed:
        raise ValueError(text)
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(text)
    return Address(host, int(port))


def is_node_id(text: str) -> bool:
    return _NODE_ID.fullmatch(text) is not None
