"""The bulk client through a proxy that ends TLS, as a broker without TLS of its own is put behind."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest
from tests.support.broker import Broker

from goqueue.client.kafka import BatchSender, KafkaCluster, KafkaError, NotUnderstood, Security
from goqueue.log.batch import build_batch
from goqueue.model.record import NewRecord

TIMEOUT_S = 60.0
pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is needed to make certificates"
)


class Certificates(NamedTuple):
    ca: str
    server: str
    client: str
    key: str


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server that is called `broker.test`, and a client; all with the same key."""
    folder = tmp_path_factory.mktemp("certificates")

    def run(*args: str) -> None:
        subprocess.run(["openssl", *args], check=True, cwd=folder, capture_output=True, timeout=60)

    run("genrsa", "-out", "key.pem", "2048")
    run(
        "req",
        "-x509",
        "-new",
        "-key",
        "key.pem",
        "-subj",
        "/CN=test authority",
        "-days",
        "2",
        "-out",
        "ca.pem",
    )
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:broker.test\nbasicConstraints=CA:FALSE\n")
        run("req", "-new", "-key", "key.pem", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "key.pem", "-CAcreateserial", "-days", "2")
        run("x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    return Certificates(*(str(folder / name) for name in ("ca.pem", "server.pem", "client.pem", "key.pem")))


class TlsProxy:
    """Takes TLS on one side and speaks plainly on the other."""

    def __init__(self, certificates: Certificates) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server, certificates.key)
        self._context.load_verify_locations(certificates.ca)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._target = ("", 0)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(TIMEOUT_S)
        for one in self._sockets:
            _hang_up(one)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        for one in self._sockets:
            one.close()

    def point_at(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)

    def demand_certificates(self) -> None:
        self._context.verify_mode = ssl.CERT_REQUIRED

    def _start(self, *args: object) -> None:
        thread = threading.Thread(target=args[0], args=args[1:], daemon=True)  # type: ignore[arg-type]  # a function
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                plain.settimeout(TIMEOUT_S)
                client = self._context.wrap_socket(plain, server_side=True)
            except OSError:  # the client does not believe, or is not believed
                plain.close()
                continue
            server = socket.create_connection(self._target, timeout=TIMEOUT_S)
            self._sockets += [client, server]
            self._start(_pump, client, server)
            self._start(_pump, server, client)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
    except OSError:
        pass  # cut
    _hang_up(sink)


def _hang_up(one: socket.socket) -> None:
    try:
        socket.socket.shutdown(one, socket.SHUT_RDWR)
    except OSError:
        pass  # the other side was faster


@pytest.fixture(scope="module")
def proxy(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProxy]:
    with TlsProxy(certificates) as proxy:
        env = {"GOQUEUE_KAFKA_ADVERTISED": proxy.address}
        with Broker(tmp_path_factory.mktemp("tls"), env=env) as broker:
            proxy.point_at(broker.kafka)
            yield proxy


def test_batches_go_through_tls_and_come_back(proxy: TlsProxy, certificates: Certificates) -> None:
    security = Security("SSL", ca_path=certificates.ca, server_name="broker.test")
    batch = build_batch([NewRecord(None, b"%d" % at * 100) for at in range(1_000)], 1)
    with KafkaCluster(proxy.address, security=security, timeout_s=TIMEOUT_S) as cluster:
        cluster.create_topic("t", 1, {"retention.ms": "-1"})
        with BatchSender(cluster) as sender:
            for _ in range(20):
                sender.send("t", 0, batch)
        chunks = cluster.fetch("t", 0, 0, 20_000, committed=True, bytes_max=300_000)
        data = b"".join(bytes(chunk.data) for chunk in chunks)
    assert len(data) == 20 * len(batch)
    assert data.count(batch[16:]) == 20  # behind what the leader assigns


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "certificate of .* is not accepted: .*self.signed"),
        ({"ca": True}, "not accepted: IP address mismatch"),
        ({"ca": True, "server_name": "other.test"}, "not accepted: Hostname mismatch"),
    ],
)
def test_certificate_that_is_not_believed_is_named(
    proxy: TlsProxy, certificates: Certificates, options: dict[str, str | bool], reason: str
) -> None:
    security = Security(
        "SSL",
        ca_path=certificates.ca if options.get("ca") else None,
        server_name=str(options["server_name"]) if "server_name" in options else None,
    )
    with (
        KafkaCluster(proxy.address, security=security, timeout_s=TIMEOUT_S) as cluster,
        pytest.raises(NotUnderstood, match=reason),
    ):
        cluster.topics()


def test_checks_may_be_switched_off(proxy: TlsProxy, certificates: Certificates) -> None:
    for security in (
        Security("SSL", ca_path=certificates.ca, is_name_checked=False),
        Security("SSL", is_verified=False),
    ):
        with KafkaCluster(proxy.address, security=security, timeout_s=TIMEOUT_S) as cluster:
            cluster.topics()


def test_client_shows_its_certificate(certificates: Certificates, tmp_path: Path) -> None:
    with TlsProxy(certificates) as proxy:
        proxy.demand_certificates()
        with Broker(tmp_path, env={"GOQUEUE_KAFKA_ADVERTISED": proxy.address}) as broker:
            proxy.point_at(broker.kafka)
            anybody = Security("SSL", ca_path=certificates.ca, is_name_checked=False)
            with (
                KafkaCluster(proxy.address, security=anybody, timeout_s=0.3) as cluster,
                pytest.raises(KafkaError, match=proxy.address),
            ):
                cluster.topics()
            known = Security(
                "SSL",
                ca_path=certificates.ca,
                cert_path=certificates.client,
                key_path=certificates.key,
                is_name_checked=False,
            )
            with KafkaCluster(proxy.address, security=known, timeout_s=TIMEOUT_S) as cluster:
                assert cluster.topics() == {}


def test_plain_client_at_a_tls_port_and_the_other_way_round_are_told(proxy: TlsProxy, tmp_path: Path) -> None:
    with (
        KafkaCluster(proxy.address, timeout_s=0.3) as cluster,
        pytest.raises(KafkaError, match=proxy.address),
    ):
        cluster.topics()
    with Broker(tmp_path) as broker:
        tls = Security("SSL", is_verified=False)
        with (
            KafkaCluster(broker.kafka, security=tls, timeout_s=0.5) as cluster,
            pytest.raises(KafkaError, match=broker.kafka),
        ):
            cluster.topics()
