"""Whole nodes that talk over TLS: they keep what clients write, and answer nobody at that port for whom their authority does not
vouch."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.certificates import Authority, needs_openssl
from tests.support.cluster_load import create
from tests.support.kafka_clients import Confluent, Record, until
from tests.support.local_cluster import LocalCluster

from goqueue.client.rest import RestClient
from goqueue.node.cluster import exchange

pytestmark = needs_openssl
TIMEOUT_S = 60.0
ASSIGNMENTS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
RECORDS = [Record(value=f"v{number}".encode(), partition=number % 3) for number in range(300)]
# Anybody may ask for it who gets through: nothing but TLS can be what refuses it.
HEALTH = f"GET /v1{exchange.HEALTH} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n".encode()


class Guarded(NamedTuple):
    cluster: LocalCluster
    ours: Authority
    theirs: Authority  # whom nobody in the cluster believes


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("mtls")
    ours, theirs = Authority(folder / "ours"), Authority(folder / "theirs")
    for number in (1, 2, 3):
        ours.vouch_for(f"node-{number}")
    theirs.vouch_for("node-1")
    with LocalCluster(folder, certificates=ours.folder) as cluster:
        yield Guarded(cluster, ours, theirs)


def health_at(port: int, context: ssl.SSLContext | None) -> bytes:
    """What is answered before the connection ends; a connection that breaks has answered nothing, one that says nothing is an error."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as plain:
        try:
            if context is None:
                return _asked(plain)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as guarded:
                return _asked(guarded)
        except (ssl.SSLError, ConnectionError):
            return b""


def _asked(connection: socket.socket) -> bytes:
    connection.sendall(HEALTH)
    answer = b""
    while more := connection.recv(65_536):
        answer += more
    return answer


def test_what_is_written_is_on_every_node_and_is_read_again(guarded: Guarded) -> None:
    cluster = guarded.cluster
    create(cluster, "orders", ASSIGNMENTS)
    with RestClient(cluster.nodes[1].url) as client:
        until(
            lambda: all(len(one.isr) == 3 for one in client.partitions("orders")),
            "all replicas are in sync",
        )
        Confluent(cluster.bootstrap).send("orders", RECORDS)
        assert all(len(one.isr) == 3 for one in client.partitions("orders"))
    rows = Confluent(cluster.bootstrap).read("orders", dict.fromkeys(range(3), 100))
    assert sorted(row.value or b"" for row in rows) == sorted(one.value or b"" for one in RECORDS)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_who_has_no_certificate_of_the_authority_is_told_nothing(guarded: Guarded, number: int) -> None:
    port = guarded.cluster.ports[number - 1]
    ours, theirs = guarded.ours, guarded.theirs
    assert health_at(port, ours.show("node-1", ours.trusted())).startswith(b"HTTP/1.1 200")
    for refused in (None, ours.trusted(), theirs.show("node-1", ours.trusted())):
        assert b"HTTP" not in health_at(port, refused)


def test_a_node_is_not_believed_by_who_has_another_authority(guarded: Guarded) -> None:
    with (
        pytest.raises(ssl.SSLCertVerificationError),
        socket.create_connection(("127.0.0.1", guarded.cluster.ports[0]), timeout=TIMEOUT_S) as plain,
    ):
        guarded.theirs.trusted().wrap_socket(plain, server_hostname="127.0.0.1")
