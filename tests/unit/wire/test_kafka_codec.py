"""What the reader does with bytes that are not what they claim to be: it says so, soon and cheaply."""

from __future__ import annotations

import time
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.messages import Messages

from goqueue.wire.codec import (
    REQUEST_ITEM_COUNT_MAX,
    TEXT_BYTES_MAX,
    Malformed,
    Output,
    request_reader,
    request_writer,
    response_reader,
    response_writer,
    write_uvarint,
)
from goqueue.wire.schema import Field, MessageSchema, api_names, request_schema, responses

WIDTH = 200
_SMALLEST = {"string": "ab", "bytes": b"", "uuid": bytes(16)}


def every_version(api: str) -> list[int]:
    return sorted({version for bounds in request_schema(api).versions() for version in bounds})


def uvarint(value: int) -> bytes:
    out = Output()
    write_uvarint(out, value)
    return bytes(out)


def written(write: Any, message: Any) -> bytes:
    out = Output()
    write(out, message)
    return b"".join(out.pieces())


@pytest.mark.parametrize("api", api_names())
def test_request_cut_at_any_byte_is_malformed(api: str) -> None:
    messages = Messages(Random(1))
    for version in every_version(api):
        read = request_reader(api, version)
        body = min((messages.request(api, version) for _ in range(10)), key=lambda one: abs(len(one) - 200))
        read(body, 0)
        for end in range(len(body)):
            with pytest.raises(Malformed):
                read(body[:end], 0)


@pytest.mark.parametrize("api", api_names())
def test_flipped_bytes_give_a_value_or_malformed(api: str) -> None:
    random = Random(2)
    messages = Messages(random)
    for version in every_version(api):
        read = request_reader(api, version)
        for _ in range(20):
            body = bytearray(messages.request(api, version))
            for _ in range(random.randrange(1, 5)):
                if body:
                    body[random.randrange(len(body))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                read(bytes(body), 0)
            except Malformed:
                pass


@given(st.binary(max_size=200), st.sampled_from(api_names()), st.data())
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_bytes_give_a_value_or_malformed(body: bytes, api: str, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(every_version(api)))
    for read in (request_reader(api, version), response_reader(api, version)):
        try:
            read(body, 0)
        except Malformed:
            pass


@pytest.mark.parametrize("api", api_names())
def test_reading_is_bounded_in_memory_and_time(api: str) -> None:
    """Arrays as wide as a frame allows, of items as small as they come."""
    for version in (every_version(api)[0], every_version(api)[-1]):
        schema = request_schema(api)
        out = Output()
        request_writer(api, version)(out, widest(schema, schema.layout(version).fields, schema.root))
        body = bytes(out)
        read = request_reader(api, version)
        tracemalloc.start()
        started = time.process_time()
        try:
            read(body, 0)
        except Malformed:
            pass
        took_s = time.process_time() - started
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 * len(body) + 100_000, version  # other threads of the process count too
        assert took_s < 10, version  # with the memory traced, on a slow machine


def widest(schema: MessageSchema, fields: tuple[Field, ...], name: str) -> Any:
    """An innermost array has many of the same item; only the first array of an item is not empty."""
    members: dict[str, Any] = {}
    for field in fields:
        if field.array and not any(members.values()):
            item = (
                widest(schema, field.fields, field.struct) if field.struct else _SMALLEST.get(field.type, 0)
            )
            members[field.name] = (item,) * (10 if any(one.array for one in field.fields) else WIDTH)
        elif field.struct and not field.array:
            members[field.name] = schema.classes[field.struct]()
        elif field.type == "string" and not field.nullable:
            members[field.name] = ""
    return schema.classes[name](**members)


def test_items_of_all_arrays_count_against_one_allowance() -> None:
    """Three bytes per topic: without a limit, a frame of 32 MiB would make ten million objects."""
    topic = b"\x01\x01\x00"  # an empty name, no partitions, no tags
    head = b"\x00" + b"\xff\xff" + bytes(4)  # no transactional id, acks, timeout
    count = REQUEST_ITEM_COUNT_MAX
    read = request_reader("produce", 9)

    assert len(read(head + uvarint(count + 1) + topic * count + b"\0", 0).topic_data) == count
    with pytest.raises(Malformed, match="topic_data is one item too many"):
        read(head + uvarint(count + 2) + topic * (count + 1) + b"\0", 0)

    partition = bytes(4) + b"\x01\x00"
    nested = b"\x01" + uvarint(1_001) + partition * 1_000 + b"\0"
    with pytest.raises(Malformed, match="partition_data is one item too many"):
        read(head + uvarint(301) + nested * 300 + b"\0", 0)


def test_allowance_is_renewed_with_each_message() -> None:
    topics = uvarint(REQUEST_ITEM_COUNT_MAX // 2 + 1) + b"\x01\x01\x00" * (REQUEST_ITEM_COUNT_MAX // 2)
    body = b"\x00\xff\xff" + bytes(4) + topics + b"\0"
    for _ in range(3):
        request_reader("produce", 9)(body, 0)


def test_tagged_fields_count_as_items() -> None:
    tags = uvarint(REQUEST_ITEM_COUNT_MAX + 1) + b"\x63\x00" * (REQUEST_ITEM_COUNT_MAX + 1)
    with pytest.raises(Malformed, match="a tagged field is one item too many"):
        request_reader("list_groups", 3)(tags, 0)


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tag = b"\x01" + uvarint(9_999) + b"\x03abc"
    topic = bytes(16) + b"\x02a" + tag
    request = request_reader("metadata", 12)(b"\x02" + topic + b"\x01\x00" + tag, 0)
    assert [one.name for one in request.topics] == ["a"]
    assert request.allow_auto_topic_creation is True


def test_known_tagged_field_with_another_length_than_announced_is_malformed() -> None:
    good = b"\x01\x00\x02\x02x"  # one tag, cluster_id, two bytes: the string "x"
    head = bytes(4 * 4) + b"\x00" + bytes(4) + b"\xff\xff\xff\xff" + b"\x01\x01\x01"
    assert request_reader("fetch", 12)(head + good, 0).cluster_id == "x"
    for bad in (b"\x01\x00\x03\x02xy", b"\x01\x00\x01\x02x", b"\x01\x00\x7f\x02x"):
        with pytest.raises(Malformed):
            request_reader("fetch", 12)(head + bad, 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "more than five bytes"),
        (b"\xff\xff\xff\xff\x0f", "items in 0 bytes"),
        (b"", "index out of range"),
    ],
)
def test_hostile_length_is_malformed(body: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        request_reader("metadata", 12)(body, 0)


def test_string_is_utf_8_and_no_longer_than_kafka_allows() -> None:
    read = request_reader("find_coordinator", 3)
    assert read(uvarint(TEXT_BYTES_MAX + 1) + b"a" * TEXT_BYTES_MAX + b"\0\0", 0).key == "a" * TEXT_BYTES_MAX
    with pytest.raises(Malformed, match="32768 bytes"):
        read(uvarint(TEXT_BYTES_MAX + 2) + b"a" * (TEXT_BYTES_MAX + 1) + b"\0\0", 0)
    with pytest.raises(Malformed, match="utf-8"):
        read(b"\x03\xff\xfe\0\0", 0)


def test_negative_length_below_null_is_malformed() -> None:
    with pytest.raises(Malformed, match="a length is -2"):
        request_reader("metadata", 1)(b"\xff\xff\xff\xfe", 0)


def test_null_where_a_version_has_none_is_malformed() -> None:
    with pytest.raises(Malformed, match="topics is null"):
        request_reader("metadata", 0)(b"\xff\xff\xff\xff", 0)
    with pytest.raises(Malformed, match="a string is null"):
        request_reader("find_coordinator", 0)(b"\xff\xff", 0)


@pytest.mark.parametrize("version", [8, 9])
def test_sentence_that_is_too_long_loses_its_end(version: int) -> None:
    """A name within the limit may be quoted in an error that is not."""
    produced = responses("produce")
    partition = produced.PartitionProduceResponse(error_message="\u20ac" * 20_000)
    answer = produced.ProduceResponse(
        responses=[produced.TopicProduceResponse(name="t", partition_responses=[partition])]
    )
    data = written(response_writer("produce", version), answer)
    topic = response_reader("produce", version)(data, 0).responses[0]
    assert topic.partition_responses[0].error_message == "\u20ac" * (TEXT_BYTES_MAX // 3)


def test_none_where_a_version_has_no_null_is_written_empty() -> None:
    metadata = responses("metadata")
    topic = metadata.MetadataResponseTopic(name=None)
    data = written(response_writer("metadata", 9), metadata.MetadataResponse(topics=[topic]))
    assert response_reader("metadata", 9)(data, 0).topics[0].name == ""


def test_records_from_files_are_not_copied_into_the_message() -> None:
    fetched = responses("fetch")
    chunks = [memoryview(b"first"), memoryview(b"second")]
    answer = fetched.FetchResponse(
        responses=[
            fetched.FetchableTopicResponse(
                topic="t", partitions=[fetched.PartitionData(records=chunks), fetched.PartitionData()]
            )
        ]
    )
    for version in (11, 12):
        out = Output()
        response_writer("fetch", version)(out, answer)
        assert [piece for piece in out.pieces() if piece in chunks] == chunks
        read = response_reader("fetch", version)(b"".join(out.pieces()), 0)
        assert [one.records for one in read.responses[0].partitions] == [b"firstsecond", None]


def test_requests_may_begin_anywhere_in_a_frame() -> None:
    write, read = request_writer("find_coordinator", 3), request_reader("find_coordinator", 3)
    body = Messages(Random(3)).make(request_schema("find_coordinator"), 3)
    data = written(write, body)
    assert read(b"header" + data, 6) == read(data, 0)
