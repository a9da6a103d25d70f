"""The nodes of a cluster as they are configured: NAME@HOST:PORT, separated by commas."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.cli.addresses import Address, is_node_id, parse_address
from goqueue.node.config import Peer


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Raises ValueError for what is no list of peers; an empty text is an empty one."""
    return tuple(_parse_peer(one.strip()) for one in text.split(",")) if text.strip() else ()


def format_peers(peers: Iterable[Peer]) -> str:
    return ",".join(f"{peer.name}@{address_of(peer)}" for peer in peers)


def address_of(peer: Peer) -> Address:
    return Address(peer.host, peer.port)


def _parse_peer(text: str) -> Peer:
    name, at, place = text.partition("@")
    address = parse_address(place)
    if not at or not is_node_id(name) or not address.port:
        raise ValueError(text)
    return Peer(name, address.host, address.port)
