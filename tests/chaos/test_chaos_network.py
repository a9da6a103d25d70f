"""The network that worlds without networks of their own break, with real sockets on both of its sides."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.chaos.links import Links
from tests.chaos.world import Addresses
from tests.support.faulty_network import FaultyNetwork

CLIENT, SERVER = 1, 2
ANSWER_S = 30.0
SILENCE_S = 0.2  # to see that nothing comes: as long as is waited for it, for it would come at once


class Scene:
    """One client, and one server that says what the test has it say."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.network = stack.enter_context(FaultyNetwork())
        self.listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listener.settimeout(ANSWER_S)
        port = self.listener.getsockname()[1]
        self.address = self.network.link(CLIENT, SERVER, f"127.0.0.1:{port}")

    def dial(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return self._stack.enter_context(socket.create_connection((host, int(port)), timeout=ANSWER_S))

    def accept(self) -> socket.socket:
        server, _ = self.listener.accept()
        server.settimeout(ANSWER_S)
        return self._stack.enter_context(server)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        client = self.dial()
        return client, self.accept()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def _hears_nothing(one: socket.socket) -> bool:
    one.settimeout(SILENCE_S)
    try:
        one.accept() if _listens(one) else one.recv(1)
    except TimeoutError:
        return True
    finally:
        one.settimeout(ANSWER_S)
    return False


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_over(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def _exactly(one: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := one.recv(count - len(data))):
        data += more
    return data


def test_what_is_said_arrives_both_ways_and_so_does_the_end(scene: Scene) -> None:
    client, server = scene.pair()
    much = bytes(range(256)) * 4_096
    client.sendall(much)
    assert _exactly(server, len(much)) == much
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    server.sendall(b"answer")
    server.close()
    assert _exactly(client, 10) == b"answer"


def test_a_cut_holds_back_one_way_and_what_was_said_arrives_when_it_is_healed(scene: Scene) -> None:
    client, server = scene.pair()
    scene.network.cut(CLIENT, SERVER)
    client.sendall(b"question")
    assert _hears_nothing(server)
    server.sendall(b"unasked")
    assert _exactly(client, 7) == b"unasked"
    scene.network.heal()
    assert _exactly(server, 8) == b"question"


def test_an_answer_goes_the_way_of_its_sender_whoever_has_connected(scene: Scene) -> None:
    client, server = scene.pair()
    scene.network.cut(SERVER, CLIENT)
    client.sendall(b"question")
    assert _exactly(server, 8) == b"question"
    server.sendall(b"answer")
    assert _hears_nothing(client)
    scene.network.heal()
    assert _exactly(client, 6) == b"answer"


def test_over_a_cut_nobody_hears_that_the_other_is_gone(scene: Scene) -> None:
    client, server = scene.pair()
    scene.network.cut(CLIENT, SERVER)
    client.sendall(b"last words")
    client.close()
    assert _hears_nothing(server)
    scene.network.heal()
    assert _exactly(server, 20) == b"last words"


@pytest.mark.parametrize("way", [(CLIENT, SERVER), (SERVER, CLIENT)])
def test_a_new_connection_needs_both_ways_and_waits_for_them(scene: Scene, way: tuple[int, int]) -> None:
    scene.network.cut(*way)
    client = scene.dial()
    client.sendall(b"hello")
    assert _hears_nothing(scene.listener)
    assert _hears_nothing(client)
    scene.network.heal()
    assert _exactly(scene.accept(), 5) == b"hello"


def test_who_has_hung_up_before_the_network_is_whole_was_never_there(scene: Scene) -> None:
    scene.network.cut(CLIENT, SERVER)
    impatient = scene.dial()
    impatient.sendall(b"impatient")
    impatient.close()
    patient = scene.dial()
    patient.sendall(b"patient")
    scene.network.heal()
    assert _exactly(scene.accept(), 7) == b"patient"


def test_a_slow_way_delays_each_word_and_keeps_their_order(scene: Scene) -> None:
    client, server = scene.pair()
    scene.network.slow(CLIENT, SERVER, 200)
    began = time.monotonic()
    for number in range(50):
        client.sendall(bytes([number]))
    assert _exactly(server, 50) == bytes(range(50))
    assert time.monotonic() - began >= 0.15
    scene.network.heal()
    server.sendall(b"answer")
    assert _exactly(client, 6) == b"answer"


def test_a_reset_breaks_a_connection_in_the_middle_and_the_next_one_works(scene: Scene) -> None:
    client, server = scene.pair()
    client.sendall(b"hello")
    assert _exactly(server, 5) == b"hello"
    scene.network.reset(CLIENT, SERVER)
    client.sendall(b"half of it")
    assert _exactly(server, 5) == b"half "
    for one in (client, server):
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    client, server = scene.pair()
    client.sendall(b"all of it")
    assert _exactly(server, 9) == b"all of it"


def test_who_calls_where_nobody_listens_is_told_so(scene: Scene) -> None:
    scene.listener.close()
    with pytest.raises(ConnectionResetError):
        scene.dial().recv(1)


def test_the_end_of_the_network_ends_what_waits_in_it(scene: Scene) -> None:
    client, _ = scene.pair()
    scene.network.cut(SERVER, CLIENT)
    waiting = scene.dial()
    scene.network.close()
    assert _is_over(client)
    assert _is_over(waiting)


def test_every_node_is_told_its_own_address_and_links_for_all_others() -> None:
    listening = Addresses(
        kafka=["127.0.0.1:1", "127.0.0.1:2"],
        http=["127.0.0.1:3", "127.0.0.1:4"],
        cluster=["127.0.0.1:5", "127.0.0.1:6"],
    )
    links = Links(listening)
    try:
        peers = [links.outlook(node).peers.split(",") for node in (1, 2)]
    finally:
        links.close()
    assert [peers[0][0], peers[1][1]] == ["node-1@127.0.0.1:5", "node-2@127.0.0.1:6"]
    assert not {*peers[0][1:], *peers[1][:1]} & set(listening.peers.split(","))
    assert not {*links.addresses.kafka, *links.addresses.http} & {*listening.kafka, *listening.http}
