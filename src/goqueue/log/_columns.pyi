from collections.abc import Callable

from goqueue.log.columns import Buffer, Rows, Strings
from goqueue.log.gathering import Crc, Parts

class Gatherer:
    def __init__(
        self, names: tuple[str, ...], bytes_max: int, parse: Callable[[bytes], int | None], /
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def add(
        self,
        payload: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        lower: int,
        upper: int,
        /,
    ) -> int: ...
    def add_run(
        self,
        data: bytes | memoryview,
        position: int,
        lower: int,
        upper: int,
        rows_max: int,
        bytes_max: int,
        left_bits: int,
        crc: Crc | None,
        /,
    ) -> tuple[int, int]: ...
    def take(self) -> tuple[int, dict[str, Parts]]: ...

def encode_columns(rows: Rows, picked: Buffer, base_timestamp: int, usual_timestamp: int, /) -> bytes: ...
def record_sizes(rows: Rows, /) -> bytearray: ...
def partitions_of(keys: Strings, partitioner: str, count: int, /) -> bytearray: ...
