"""Ports that stay ours when the process that listened on them is killed.

The kernel gives the ports of its own range to whoever connects: with a broker down, another test's socket may take its
port, or a client that keeps calling the dead broker may be given the very port it calls, and then talks to itself.
Below that range nobody gets a port unasked, and the workers of a test run divide it among themselves.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 100

_choice = random.Random(os.urandom(8))
_given: set[int] = set()  # whoever got it may not listen yet, or be down for a while


def port_of_ours(host: str = "127.0.0.1") -> int:
    """One that nobody listens on now, that nobody got before, and that the kernel gives to nobody else."""
    worker, workers = _worker()
    ours = range(_LOWEST + worker, _first_of_kernel(), workers)
    for _ in range(_TRIES):
        port = _choice.choice(ours)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError(f"no free port among {ours} on {host} in {_TRIES} tries")


def _worker() -> tuple[int, int]:
    """Which of how many we are, as xdist says it."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def _first_of_kernel() -> int:
    try:
        first = int(_RANGE.read_text().split()[0])
    except OSError:  # not Linux: the range of the Internet's own registry
        first = 49_152
    return max(first, _LOWEST + 1_000)
