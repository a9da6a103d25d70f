from goqueue.log.records import Row

def check_records(
    data: bytes | memoryview, start: int, count: int, last_offset_delta: int, /
) -> int | None: ...
def decode_records(
    data: bytes | memoryview, start: int, count: int, last_offset_delta: int, /
) -> list[Row]: ...
