"""Whether the records of a batch belong where it was sent: of topics that keep every key in its partition (ADR 35), each batch is
asked. So this is C where the module was compiled, and Python otherwise; the two say the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from goqueue.log.records import decode_records
from goqueue.model.partitioner import Partitioner, hash_key

AreHome = Callable[[bytes | memoryview, int, int, int, int, int, int], bool]

# As the compiled twin counts them.
_KINDS: Final = {Partitioner.MURMUR3: 0, Partitioner.MURMUR2: 1, Partitioner.CRC32: 2}
_PARTITIONERS: Final = {kind: partitioner for partitioner, kind in _KINDS.items()}


def are_home_in_python(
    data: bytes | memoryview,
    start: int,
    count: int,
    last_offset_delta: int,
    kind: int,
    modulus: int,
    index: int,
    /,
) -> bool:
    partitioner = _PARTITIONERS[kind]
    return all(
        row[2] is None or hash_key(partitioner, row[2]) % modulus == index
        for row in decode_records(data, start, count, last_offset_delta)
    )


_are_home: AreHome = are_home_in_python
# GOQUEUE_PURE_PYTHON turns the compiled twin off, as in `records`.
try:
    if os.environ.get("GOQUEUE_PURE_PYTHON"):
        raise ImportError
    from goqueue.log import _kernel

    _are_home = _kernel.are_home
except (ImportError, AttributeError):  # not compiled, or before there was this function
    pass


def are_home(
    payload: tuple[bytes | memoryview, int],
    record_count: int,
    last_offset_delta: int,
    partitioner: Partitioner,
    modulus: int,
    index: int,
) -> bool:
    """Whether every record that has a key has one whose hash, modulo that, is the index. The payload is that of a valid batch, not
    compressed, and where in it the records begin."""
    data, start = payload
    return _are_home(data, start, record_count, last_offset_delta, _KINDS[partitioner], modulus, index)
