"""A TCP proxy that can be told to misbehave: to cut every connection, or to hold back what clients say.

A broker is told to advertise the proxy's address, so everything of its clients passes through here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class TcpProxy:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._target: tuple[str, int] | None = None
        self._pairs: list[_Pair] = []
        self._lock = threading.Lock()
        self._held: bytes | None = None
        self._flows = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone does not wake a thread in accept().
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(30)
        self.cut()
        for thread in self._threads:
            thread.join(30)

    def point_at(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)

    def cut(self) -> int:
        """End every connection, whatever is under way; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def hold(self, client_id: str) -> None:
        """What this client says is held back until `release`, on new connections too."""
        self._flows.clear()
        self._held = client_id.encode()

    def release(self) -> None:
        self._held = None
        self._flows.set()

    def until_it_may(self, first: bytes) -> None:
        """Return when a client whose first words were these may speak: they have its name in them."""
        while (held := self._held) is not None and held in first:
            self._flows.wait(1.0)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._target is None:
                    raise ConnectionRefusedError
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()  # the broker is down
                continue
            server.settimeout(None)
            pair = _Pair(client, server, self.until_it_may)
            with self._lock:
                self._pairs.append(pair)
            self._threads += pair.start()


class _Pair:
    def __init__(
        self, client: socket.socket, server: socket.socket, until_it_may: Callable[[bytes], None]
    ) -> None:
        self._client, self._server = client, server
        self._until_it_may = until_it_may
        self._left = 2
        self._lock = threading.Lock()

    def start(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._pump, args=ends, daemon=True)
            for ends in ((self._client, self._server), (self._server, self._client))
        ]
        for thread in threads:
            thread.start()
        return threads

    def cut(self) -> None:
        for one in (self._client, self._server):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was faster

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        first = b""
        try:
            while data := source.recv(65_536):
                first = first or data
                if source is self._client:
                    self._until_it_may(first)
                sink.sendall(data)
        except OSError:
            pass  # cut
        self.cut()
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._client.close()
                self._server.close()
