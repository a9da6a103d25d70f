"""REST calls to any node of a local cluster."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.support.local_cluster import LocalCluster

Json = Any  # whatever the nodes answer; the tests look into it

TIMEOUT_S = 60.0


class Said(NamedTuple):
    status: int
    body: Json


class Rest:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def call(self, node: int, method: str, path: str, body: Json = None) -> Said:
        """Raises OSError where the node is down, or goes down."""
        request = urllib.request.Request(
            self._cluster.nodes[node].url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return Said(answer.status, json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            return Said(error.code, json.loads(error.read()))
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error

    def get(self, node: int, path: str) -> Json:
        said = self.call(node, "GET", path)
        assert said.status == 200, said
        return said.body

    def post(self, node: int, path: str, body: Json, status: int = 200) -> Json:
        said = self.call(node, "POST", path, body)
        assert said.status == status, said
        return said.body

    def leaders(self, node: int, topic: str) -> list[int]:
        """By partition: the nodes' numbers. Once each has a leader."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            partitions = self.get(node, f"/topics/{topic}/partitions")["partitions"]
            names = [one["leader"] for one in partitions]
            if all(names):
                return [int(name.removeprefix("node-")) for name in names]
            assert time.monotonic() < deadline, partitions

    def coordinator(self, node: int, group: str) -> int:
        return int(self.get(node, f"/admin/coordinators/groups/{group}")["node"].removeprefix("node-"))

    def eventually(
        self, nodes: Iterable[int], method: str, path: str, body: Json = None, *, s_max: float = 90.0
    ) -> Said:
        """From whichever node answers without a 503 or 504 first; for what may be repeated."""
        deadline = time.monotonic() + s_max
        last: object = None
        while time.monotonic() < deadline:
            for node in nodes:
                try:
                    said = self.call(node, method, path, body)
                except OSError as error:
                    last = error
                    continue
                if said.status not in (503, 504):
                    return said
                last = said
        raise AssertionError(f"no answer to {method} {path} within {s_max:g} s; the last was {last!r}")
