"""TLS between nodes: both sides show a certificate of the cluster's authority."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from goqueue.cli.cluster_tls import ClusterTls, TlsUnusable, cluster_tls
from goqueue.cli.config import Config

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is needed to make certificates"
)


def make_authority(folder: Path) -> Path:
    """An authority and a certificate of it for 127.0.0.1, with one key."""
    folder.mkdir()

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
        f"/CN={folder.name}",
        "-days",
        "2",
        "-out",
        "ca.pem",
    )
    (folder / "node.ext").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    run("req", "-new", "-key", "key.pem", "-subj", "/CN=node", "-out", "node.csr")
    signed = ("-CA", "ca.pem", "-CAkey", "key.pem", "-CAcreateserial", "-days", "2")
    run("x509", "-req", "-in", "node.csr", *signed, "-extfile", "node.ext", "-out", "node.pem")
    return folder


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("certificates") / "ours")


def tls_of(folder: Path) -> ClusterTls:
    config = structs.replace(
        Config(),
        cluster_tls_certificate=str(folder / "node.pem"),
        cluster_tls_key=str(folder / "key.pem"),
        cluster_tls_authority=str(folder / "ca.pem"),
    )
    tls = cluster_tls(config)
    assert tls is not None
    return tls


def shake_hands(listener: ssl.SSLContext, link: ssl.SSLContext, host: str = "127.0.0.1") -> bytes:
    """Both sides in memory; what the listener reads of what the link writes."""
    to_listener, to_link = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listener.wrap_bio(to_listener, to_link, server_side=True)
    client = link.wrap_bio(to_link, to_listener, server_hostname=host)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    client.write(b"hello")
    return server.read(5)


def test_nodes_of_one_authority_understand_each_other(authority: Path) -> None:
    tls = tls_of(authority)
    assert shake_hands(tls.listener, tls.links) == b"hello"


def test_a_node_of_another_authority_or_without_certificate_is_turned_away(
    authority: Path, tmp_path: Path
) -> None:
    ours, theirs = tls_of(authority), tls_of(make_authority(tmp_path / "theirs"))
    with pytest.raises(ssl.SSLError):
        shake_hands(ours.listener, theirs.links)
    bare = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    with pytest.raises(ssl.SSLError):
        shake_hands(ours.listener, bare)


def test_a_certificate_for_another_host_is_refused(authority: Path) -> None:
    tls = tls_of(authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls.listener, tls.links, host="127.0.0.2")


def test_without_certificates_there_is_no_tls() -> None:
    assert cluster_tls(Config()) is None


def test_files_that_do_not_fit_are_one_sentence(authority: Path, tmp_path: Path) -> None:
    with pytest.raises(TlsUnusable, match="cannot be set up with"):
        tls_of(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("node.pem", "key.pem", "ca.pem"):
        (empty / name).write_text("nonsense")
    with pytest.raises(TlsUnusable, match="cannot be set up with"):
        tls_of(empty)
