from goqueue.log.records import Row

def check_records(
    data: bytes | memoryview, start: int, count: int, last_offset_delta: int, /
) -> int | None: ...
def decode_records(
    data: bytes | memoryview, start: int, count: int, last_offset_delta: int, wanted: list[int] = ..., /
) -> list[Row]: ...
def are_home(
    data: bytes | memoryview,
    start: int,
    count: int,
    last_offset_delta: int,
    kind: int,
    modulus: int,
    index: int,
    /,
) -> bool: ...
def contains(data: bytes | memoryview, mark: bytes, /) -> bool: ...

class KeyMap:
    def __init__(self, seed: bytes, /) -> None: ...
    def __len__(self) -> int: ...
    def note(
        self, data: bytes | memoryview, start: int, count: int, last_offset_delta: int, base_offset: int, /
    ) -> None: ...
    def pick(
        self,
        data: bytes | memoryview,
        start: int,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        drops_tombstones: bool,
        base_timestamp: int,
        horizon: int | None,
        /,
    ) -> tuple[int, bool, bytes | None]: ...
    def digest(self, key: bytes, /) -> bytes: ...
