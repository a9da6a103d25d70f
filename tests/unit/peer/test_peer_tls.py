"""The links between nodes over TLS, both protocols, with certificates on both sides."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_sockets import LOOPS, answer_of, run_on
from tests.support.peers import Links, Station

from goqueue.api.cluster import listener
from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.node.cluster.ports import Beat, ReplicaRound
from goqueue.wire.schema import request_schema

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is needed to make certificates"),
    pytest.mark.parametrize("loop", LOOPS),
]
BEAT = Beat("n2", "i", 4, is_ready=True)
TEXT = "x" * 20_000
_DeleteGroups = request_schema("delete_groups").classes["DeleteGroupsRequest"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a node's certificate, with one key."""
    folder = tmp_path_factory.mktemp("certificates")

    def run(command: str) -> None:
        subprocess.run(["openssl", *command.split()], check=True, cwd=folder, capture_output=True, timeout=60)

    (folder / "node.ext").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    run("genrsa -out key.pem 2048")
    run("req -x509 -new -key key.pem -subj /CN=authority -days 2 -out ca.pem")
    run("req -new -key key.pem -subj /CN=node -out node.csr")
    run(
        "x509 -req -in node.csr -CA ca.pem -CAkey key.pem -days 2 -set_serial 1 -extfile node.ext -out node.pem"
    )
    return folder


def serving(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "node.pem", folder / "key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def asking(folder: Path, *, has_certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if has_certificate:
        context.load_cert_chain(folder / "node.pem", folder / "key.pem")
    return context


async def echo(call: Call, request: Any) -> Answer:
    return answer_of(request.groups_names[0])


def test_both_protocols_work_over_tls(loop: str, folder: Path) -> None:
    async def main() -> None:
        apis = [Api("delete_groups", 0, 2, echo)]
        station = await Station("n1", apis=apis, context=serving(folder)).start()
        links = Links(address_of=lambda name: station.address, context=asking(folder))
        assert (await links.beat("n1", BEAT)).term == 7
        for _ in range(3):
            answer = await links.call("n1", "delete_groups", 2, _DeleteGroups(groups_names=[TEXT]))
            assert answer.results[0].group_id == TEXT
        await links.close()
        await station.stop()

    run_on(loop, main())


def test_node_without_a_certificate_gets_no_answer(loop: str, folder: Path) -> None:
    async def main() -> None:
        station = await Station("n1", context=serving(folder)).start()
        links = Links(address_of=lambda name: station.address, context=asking(folder, has_certificate=False))
        with pytest.raises(PeerUnreachable):
            await links.beat("n1", BEAT)
        with pytest.raises(PeerUnreachable):
            await links.fetch("n1", ReplicaRound(0, []), wait_ms=0, bytes_max=1)
        await links.close()
        await station.stop()

    run_on(loop, main())


def test_connection_that_does_not_begin_with_tls_is_closed_as_soon_as_any_that_is_silent(
    loop: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FIRST_BYTE_S_MAX", 0.05)

    async def main() -> None:
        station = await Station("n1", context=serving(folder)).start()
        assert station.address is not None
        reader, writer = await asyncio.open_connection(*station.address)
        assert await reader.read() == b""
        writer.close()
        await station.stop()

    run_on(loop, main())


def test_plain_node_and_one_with_tls_do_not_understand_each_other(loop: str, folder: Path) -> None:
    async def main() -> None:
        plain = await Station("n1").start()
        links = Links(address_of=lambda name: plain.address, context=asking(folder))
        with pytest.raises(PeerUnreachable):
            await links.beat("n1", BEAT)
        await links.close()
        await asyncio.gather(plain.stop())

    run_on(loop, main())
