"""A node of a cluster, put together: links to the others, and the listener for them."""

from __future__ import annotations

from random import SystemRandom
from typing import NamedTuple

from goqueue.api.cluster.assembly import cluster_listener
from goqueue.api.cluster.listener import ClusterListener
from goqueue.cli.cluster_tls import cluster_tls
from goqueue.cli.config import Config
from goqueue.cli.config_keys import parse_address
from goqueue.cli.link_patience import link_times
from goqueue.log.os_disk import OsDisk
from goqueue.model.cluster_errors import NameTaken
from goqueue.model.errors import GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.cluster.secret import Secret
from goqueue.node.directory import split_address
from goqueue.node.ids import RandomIds
from goqueue.node.node import Node
from goqueue.peer.dialling import Credentials
from goqueue.peer.links import PeerLinks


class ClusterParts(NamedTuple):
    node: Node
    links: PeerLinks
    listener: ClusterListener


async def refuse_namesake(node: Node, links: PeerLinks, listens: str) -> None:
    """Whoever is found where others look for this node must be this process: another one of its name goes on undisturbed. Where nobody
    answers there is none, or it cannot be reached from here."""
    cluster, name = node.cluster, node.config.node_id
    there = next((peer for peer in node.config.cluster.peers if peer.name == name), None)
    if cluster is None or there is None:
        return
    try:
        found = await links.state(name)
    except GoQueueError:
        return
    if found.incarnation not in ("", cluster.membership.incarnation):
        raise NameTaken(name, f"{there.host}:{there.port}", listens)


def cluster_parts(config: Config, clock: Clock) -> ClusterParts:
    """Raises TlsUnusable where certificates do not fit."""
    tls = cluster_tls(config)
    ids = RandomIds()
    name = config.node.node_id
    secret = Secret(config.cluster_secret.encode())
    peers = {peer.name: (peer.host, peer.port) for peer in config.node.cluster.peers}

    def address_of(target: str) -> tuple[str, int] | None:
        """As configured; who has joined since is where it said it was, or was when this node last knew."""
        found = peers.get(target) or node.directory.cluster_address(target)
        if found is not None or node.cluster is None:
            return found
        remembered = node.cluster.remembered_address(target)
        return None if remembered is None else split_address(remembered)

    def cluster_id() -> str | None:
        return None if node.cluster is None else node.cluster.cluster_id

    def incarnation() -> str | None:
        return None if node.cluster is None else node.cluster.connects_as

    links = PeerLinks(
        Credentials(name, cluster_id, incarnation, secret, clock, ids),
        number=lambda: node.directory.number,
        address_of=address_of,
        chance=SystemRandom().random,
        times=link_times(config.node.cluster),
        context=None if tls is None else tls.links,
    )
    node = Node(config.node, OsDisk(config.data_dir), clock, ids, links)
    host, port = parse_address(config.cluster_listen)
    listener = cluster_listener(
        node,
        secret=secret,
        clock=clock,
        ids=ids,
        host=host,
        port=port,
        context=None if tls is None else tls.listener,
    )
    return ClusterParts(node, links, listener)
