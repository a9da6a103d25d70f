"""The login of one node at another: both prove who they are, and nothing that was heard before helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.cluster_errors import Unauthenticated, WrongCluster
from goqueue.node.cluster.login import ClientLogin, ServerLogin
from goqueue.node.cluster.secret import Secret


def client(
    key: bytes = b"key",
    *,
    target: str = "n1",
    cluster_id: str | None = "c1",
    nonce: str = "client-1",
    incarnation: str | None = None,
) -> ClientLogin:
    return ClientLogin(
        Secret(key),
        source="n2",
        target=target,
        cluster_id=cluster_id,
        nonce=nonce,
        incarnation=incarnation,
    )


def server(key: bytes = b"key", *, nonce: str = "server-1") -> ServerLogin:
    return ServerLogin(Secret(key), target="n1", cluster_id="c1", nonce=nonce)


def play(client: ClientLogin, server: ServerLogin) -> None:
    client.check(server.accept(client.proof(server.challenge(client.first()))))


def test_both_sides_know_each_other_after_a_login() -> None:
    at = server()
    assert at.source is None
    play(client(), at)
    assert at.source == "n2"


def test_a_login_says_which_process_it_is_of_and_nobody_can_alter_that() -> None:
    asking, at = client(incarnation="5-b"), server()
    first = asking.first()
    assert first == b'["n2","n1","c1","5-b.client-1"]'  # the nonce of a login, to earlier versions
    play(asking, at)
    assert (at.source, at.incarnation) == ("n2", "5-b")
    other = server()
    proof = asking.proof(other.challenge(first.replace(b"5-b", b"6-b")))
    with pytest.raises(Unauthenticated):
        other.accept(proof)
    assert other.incarnation is None


def test_a_login_of_an_earlier_version_does_not_say_which_process_it_is_of() -> None:
    at = server()
    play(client(), at)
    assert (at.source, at.incarnation) == ("n2", None)


def test_other_secret_is_refused_by_the_server() -> None:
    at = server()
    with pytest.raises(Unauthenticated):
        play(client(b"guess"), at)
    assert at.source is None


def test_server_without_the_secret_is_refused_by_the_client() -> None:
    asking = client()
    asking.proof(server(b"guess").challenge(asking.first()))
    for proof in (b"", b"x" * 32, asking.proof(b'["server-1"]')):
        with pytest.raises(Unauthenticated, match="does not know"):
            asking.check(proof)


def test_client_that_was_never_challenged_believes_nothing() -> None:
    with pytest.raises(Unauthenticated):
        client().check(b"")


def test_login_for_another_node_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="'n3'"):
        play(client(target="n3"), server())


def test_other_cluster_is_refused_and_one_that_knows_none_is_not() -> None:
    with pytest.raises(WrongCluster):
        play(client(cluster_id="c2"), server())
    play(client(cluster_id=None), server())


def test_recorded_login_is_of_no_use_later() -> None:
    asking, at = client(), server()
    proof = asking.proof(at.challenge(asking.first()))
    at.accept(proof)
    later = server(nonce="server-2")
    later.challenge(asking.first())
    with pytest.raises(Unauthenticated):
        later.accept(proof)


def test_proof_counts_once_and_only_after_a_challenge() -> None:
    asking, at = client(), server()
    proof = asking.proof(at.challenge(asking.first()))
    at.accept(proof)
    for again in (at, server()):
        with pytest.raises(Unauthenticated):
            again.accept(proof)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Unauthenticated):
        server().challenge(data)
    with pytest.raises(Unauthenticated):
        client().proof(data)
    at = server()
    at.challenge(client().first())
    with pytest.raises(Unauthenticated):
        at.accept(data)


@pytest.mark.parametrize(
    "first", [b'["","n1",null,"nonce-nonce"]', b'["n2","n1",null,"short"]', b"[" * 5_000]
)
def test_first_message_needs_a_name_a_long_nonce_and_a_sane_size(first: bytes) -> None:
    with pytest.raises(Unauthenticated):
        server().challenge(first)
