"""What must hold among the values of a cluster's configuration. Every sentence says what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from goqueue.cli.addresses import Address, parse_address
from goqueue.cli.config_problems import Problem, Setting
from goqueue.cli.peer_list import address_of, parse_peers
from goqueue.node.config import Peer

PEER_COUNT_MAX = 100
_TLS = ("cluster.tls_certificate", "cluster.tls_key", "cluster.tls_authority")
_ADVERTISED = ("http_advertised", "kafka_advertised", "cluster.advertised")
_LISTENERS = ("http", "kafka", "cluster.listen")
_ASCENDING = (  # each before the next, and for this reason
    ("cluster.heartbeat_ms", "cluster.suspect_ms", "a node must be able to beat before it is suspected"),
    ("cluster.suspect_ms", "cluster.dead_ms", "a node is suspected before it is dead"),
    ("cluster.lease_renew_ms", "cluster.lease_ms", "a lease must be renewed before it ends"),
)


def cluster_problems(in_force: Mapping[str, Setting], secret: str) -> list[Problem]:
    """`secret` is the one in force, from wherever it came."""
    peers = parse_peers(str(in_force["cluster.peers"].value))
    problems = [*_timings(in_force), *_tls(in_force), *_unreachable(in_force)]
    if peers:
        problems += _peers(in_force["cluster.peers"], peers)
        problems += _listeners(in_force)
        problems += _own_place(in_force, peers)
        problems += _secrecy(in_force, peers, secret)
    return problems


def cluster_warnings(in_force: Mapping[str, Setting]) -> list[str]:
    peers = parse_peers(str(in_force["cluster.peers"].value))
    name = in_force["node_id"].value
    if not peers or any(peer.name == name for peer in peers):
        return []
    return [
        f"node_id = {name} is not among cluster.peers: this node follows the cluster and holds replicas, and votes "
        f"once `goqueue cluster voters add {name}` was called"
    ]


def own_peer(peers: tuple[Peer, ...], name: str) -> Peer | None:
    return next((peer for peer in peers if peer.name == name), None)


def _timings(in_force: Mapping[str, Setting]) -> Iterator[Problem]:
    for low_name, high_name, reason in _ASCENDING:
        low, high = in_force[low_name], in_force[high_name]
        if int(low.value) >= int(high.value):
            yield low.problem(f"it must be below {high.key}, which is {high.value} ({high.source}): {reason}")
    dead, lease = in_force["cluster.dead_ms"], in_force["cluster.lease_ms"]
    if int(dead.value) > int(lease.value):
        yield dead.problem(f"it must not be above {lease.key}, which is {lease.value} ({lease.source})")


def _tls(in_force: Mapping[str, Setting]) -> Iterator[Problem]:
    given = [in_force[name] for name in _TLS if in_force[name].value]
    missing = [name for name in _TLS if not in_force[name].value]
    if given and missing:
        yield given[0].problem(f"TLS between nodes needs {' and '.join(missing)} as well")


def _unreachable(in_force: Mapping[str, Setting]) -> Iterator[Problem]:
    for name in _ADVERTISED:
        setting = in_force[name]
        if setting.value and not _can_be_told(parse_address(str(setting.value))):
            yield setting.problem(
                "nobody can connect to it; name a host and a port that others reach this node at"
            )


def _can_be_told(address: Address) -> bool:
    return not address.is_everywhere and address.port != 0


def _peers(setting: Setting, peers: tuple[Peer, ...]) -> Iterator[Problem]:
    if len(peers) > PEER_COUNT_MAX:
        yield setting.problem(f"there are {len(peers)}; a cluster has {PEER_COUNT_MAX} at most")
    by_name: dict[str, Peer] = {}
    by_address: dict[Address, Peer] = {}
    for peer in peers:
        if peer.name in by_name:
            yield setting.problem(f"{peer.name} is there twice; every node has a name of its own")
        address = address_of(peer)
        if address in by_address and by_address[address].name != peer.name:
            yield setting.problem(
                f"{by_address[address].name} and {peer.name} have the same address {address}"
            )
        if address.is_everywhere:
            yield setting.problem(
                f"{address} is every address of a machine; {peer.name} needs one to connect to"
            )
        by_name.setdefault(peer.name, peer)
        by_address.setdefault(address, peer)


def _listeners(in_force: Mapping[str, Setting]) -> Iterator[Problem]:
    """Among each other; and whoever listens everywhere must say where others find it."""
    settings = [in_force[name] for name in _LISTENERS]
    addresses = [parse_address(str(setting.value)) for setting in settings]
    for at, (setting, address) in enumerate(zip(settings, addresses, strict=True)):
        for other, taken in zip(settings[:at], addresses[:at], strict=True):
            if _overlap(address, taken):
                yield setting.problem(f"it is taken by {other.key}, which is {other.value} ({other.source})")
    for setting, address, name in zip(settings, addresses, _ADVERTISED, strict=True):
        if address.is_everywhere and not in_force[name].value:
            yield setting.problem(
                f"others cannot be told to connect to it; set {name} to an address that they reach"
            )


def _overlap(one: Address, other: Address) -> bool:
    if not one.port or one.port != other.port:
        return False
    return one.host == other.host or one.is_everywhere or other.is_everywhere


def _own_place(in_force: Mapping[str, Setting], peers: tuple[Peer, ...]) -> Iterator[Problem]:
    """Others call this node where the list of peers says; it must listen there."""
    own = own_peer(peers, str(in_force["node_id"].value))
    listen = in_force["cluster.listen"]
    address = parse_address(str(listen.value))
    if own is not None and address.is_loopback and not address_of(own).is_loopback:
        yield listen.problem(
            f"others call this node at {address_of(own)} (cluster.peers), and it would listen for this machine only"
        )


def _secrecy(in_force: Mapping[str, Setting], peers: tuple[Peer, ...], secret: str) -> Iterator[Problem]:
    is_local = parse_address(str(in_force["cluster.listen"].value)).is_loopback and all(
        address_of(peer).is_loopback for peer in peers
    )
    if not secret and not is_local:
        setting = in_force["cluster.secret"]
        right = (
            "nodes on several machines need one, the same on all; set cluster.secret or cluster.secret_file"
        )
        yield Problem(setting.source, setting.key, "(empty)", right)
