"""Publishing: which partition, which offsets, which batches, and what of a request is refused."""

from __future__ import annotations

import zlib

import pytest
from tests.support.nodes import (
    World,
    codes,
    counted,
    create,
    messages,
    offsets,
    publish,
    read_all,
    read_values,
    simulate,
)

from goqueue.log.batch import ATTRIBUTE_LOG_APPEND_TIME, HEADER_BYTES, BatchHeader, read_header
from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import RequestTooLarge, TopicNotFound
from goqueue.model.limits import Limits
from goqueue.model.record import NewRecord
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage


def batches_on_disk(world: World, topic: str = "orders", partition: int = 0) -> list[BatchHeader]:
    """The headers of all batches, from the files themselves."""
    headers: list[BatchHeader] = []
    for path in world.files(f"logs/{topic}/{partition}"):
        if path.endswith(".log"):
            content, position = world.device.snapshot()[path], 0
            while position < len(content):
                headers.append(read_header(content[position : position + HEADER_BYTES]))
                position += headers[-1].size
    return headers


def test_the_keyless_messages_of_a_request_go_to_one_partition_and_requests_take_turns() -> None:
    """Trap 29."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=3)
            partitions = []
            for at in range(7):
                values = [b"%d-%d" % (at, number) for number in range(4)]
                done = await publish(node, *values, partition=None)
                assert len({outcome.partition for outcome in done}) == 1
                partition = done[0].partition
                assert partition is not None
                stored = {record.offset: record.value for record in await read_all(node, "orders", partition)}
                assert [stored[offset] for offset in offsets(done)] == values
                partitions.append(partition)
            assert partitions == [0, 1, 2, 0, 1, 2, 0]

        await world.live(life)

    simulate(main)


def test_a_request_without_keyless_messages_does_not_use_up_a_turn() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=3)
            await publish(node, b"a", partition=None)
            await publish(node, b"b", key=b"key", partition=None)
            await publish(node, b"c", partition=2)
            await publish(node, b"x" * 2_000_000, partition=None)  # too large
            (outcome,) = await publish(node, b"d", partition=None)
            assert outcome.partition == 1

        await world.live(life)

    simulate(main)


MURMUR3 = {  # MurmurHash3_x86_32 with seed 0, published vectors
    b"": 0,
    b"hello": 0x248BFA47,
    b"hello, world": 0x149BBB7F,
    b"The quick brown fox jumps over the lazy dog": 0x2E4FF723,
}
MURMUR2 = {  # of Kafka's own UtilsTest
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
CRC32 = {b"123456789": 0xCBF43926, b"": 0, b"hello": zlib.crc32(b"hello")}


@pytest.mark.parametrize(
    ("partitioner", "hashes"), [("murmur3", MURMUR3), ("murmur2", MURMUR2), ("crc32", CRC32)]
)
def test_a_key_goes_where_every_client_expects_it(partitioner: str, hashes: dict[bytes, int]) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=7, partitioner=partitioner)
            for key, hashed in hashes.items():
                positive = hashed if partitioner == "crc32" else hashed & 0x7FFFFFFF
                (outcome,) = await publish(node, b"v", key=key, partition=None)
                assert outcome.partition == positive % 7, key

        await world.live(life)

    simulate(main)


def test_murmur3_is_the_default() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=7)
            (outcome,) = await publish(node, b"v", key=b"hello", partition=None)
            assert outcome.partition == MURMUR3[b"hello"] % 7

        await world.live(life)

    simulate(main)


def test_an_explicit_partition_wins_over_the_key() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=7)
            for partition in range(7):
                (outcome,) = await publish(node, b"v", key=b"hello", partition=partition)
                assert outcome.partition == partition
                assert await read_values(node, partition=partition) == [b"v"]

        await world.live(life)

    simulate(main)


def test_a_message_that_is_refused_leaves_the_others_stored_in_order() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2, max_message_bytes="2048")
            many = tuple((f"h{at}", b"") for at in range(101))
            request = [
                NewMessage(NewRecord(None, b"a"), 0),
                NewMessage(NewRecord(None, b"x" * 2_049), 0),
                NewMessage(NewRecord(None, b"b"), 1),
                NewMessage(NewRecord(None, b"c"), 2),
                NewMessage(NewRecord(None, b"d"), -1),
                NewMessage(NewRecord(None, b"e", many), 0),
                NewMessage(NewRecord(b"k" * 65_537, b"f"), 0),
                NewMessage(NewRecord(None, b"g", (("h", b"x" * 65_537),)), 0),
                NewMessage(NewRecord(None, b"h"), 0),
            ]
            done = await node.publisher.publish("orders", request, acks=Acks.ALL)
            assert codes(done) == [
                None,
                Code.MESSAGE_TOO_LARGE,
                None,
                Code.PARTITION_NOT_FOUND,
                Code.PARTITION_NOT_FOUND,
                Code.INVALID_REQUEST,
                Code.MESSAGE_TOO_LARGE,
                Code.MESSAGE_TOO_LARGE,
                None,
            ]
            assert [(one.partition, one.offset) for one in done if one.error is None] == [
                (0, 0),
                (1, 0),
                (0, 1),
            ]
            assert await read_values(node) == [b"a", b"h"]
            assert await read_values(node, partition=1) == [b"b"]
            assert counted(node, "broker_published_messages_total") == 3
            assert counted(node, "broker_refused_messages_total", code="MESSAGE_TOO_LARGE") == 3
            assert counted(node, "broker_refused_messages_total", code="PARTITION_NOT_FOUND") == 2

        await world.live(life)

    simulate(main)


def test_a_request_that_is_refused_as_a_whole_is_counted_too() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            with pytest.raises(TopicNotFound):
                await publish(node, b"a", b"b")
            assert counted(node, "broker_refused_messages_total", code="TOPIC_NOT_FOUND") == 2

        await world.live(life)

    simulate(main)


def test_a_request_has_a_limit_of_messages() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            offsets(await publish(node, *[b"x"] * 5))
            for count in (0, 6):
                with pytest.raises(RequestTooLarge):
                    await publish(node, *[b"x"] * count)
            assert len(await read_values(node)) == 5

        await world.live(life, config=NodeConfig(limits=Limits(messages_per_request_max=5)))

    simulate(main)


def test_no_batch_is_larger_than_the_topic_allows() -> None:
    async def main(world: World) -> None:
        values = [b"%04d" % at * 100 for at in range(60)]

        async def life(node: Node) -> None:
            await create(node, max_message_bytes="2048")
            assert offsets(await publish(node, *values)) == list(range(60))
            assert await read_values(node) == values

        await world.live(life)
        batches = batches_on_disk(world)
        assert max(batch.size for batch in batches) <= 2_048
        assert len(batches) <= 60 / 4 + 1

    simulate(main)


@pytest.mark.parametrize(
    "headers",
    [
        tuple((f"h{at}", b"x" * 8) for at in range(60)),
        (("ü" * 400, b"x"), ("é" * 300, b"y")),
        tuple((f"😀{at}", None) for at in range(100)),
    ],
)
def test_headers_count_with_every_byte_they_take(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="2048")
            request = [NewMessage(NewRecord(None, b"v" * size, headers), 0) for size in range(0, 1_200, 7)]
            done = await node.publisher.publish("orders", request, acks=Acks.ALL)
            assert set(codes(done)) == {None, Code.MESSAGE_TOO_LARGE}
            assert [record.headers for record in await read_all(node)] == [headers] * codes(done).count(None)

        await world.live(life)
        assert max(batch.size for batch in batches_on_disk(world)) <= 2_048

    simulate(main)


def test_the_largest_message_that_is_taken_can_be_read_and_a_larger_one_is_refused() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            assert codes(await publish(node, b"x" * 1024 * 1024)) == [Code.MESSAGE_TOO_LARGE]
            largest = b"x" * (1024 * 1024 - 100)
            offsets(await publish(node, largest))
            assert await read_values(node) == [largest]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("producer", 0), ("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)],
)
def test_batches_are_compressed_as_the_topic_says(setting: str, codec: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, compression_type=setting)
            await publish(node, b"x" * 5_000, None, b"")
            assert await read_values(node) == [b"x" * 5_000, None, b""]

        await world.live(life)
        (batch,) = batches_on_disk(world)
        assert batch.attributes & 0x07 == codec
        assert (batch.size < 2_000) is (codec != 0)

    simulate(main)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_timestamps_are_of_the_kind_that_the_topic_says(kind: str) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, message_timestamp_type=kind)
            stamps = []
            for _ in range(3):
                await publish(node, b"a", b"b")
                stamps.append(world.clock.now_ms())
            records = await read_all(node)
            for at, record in enumerate(records):
                assert abs(record.timestamp_ms - stamps[at // 2]) <= 10

        await world.live(life)
        flags = {bool(batch.attributes & ATTRIBUTE_LOG_APPEND_TIME) for batch in batches_on_disk(world)}
        assert flags == {kind == "LogAppendTime"}

    simulate(main)


def test_everything_about_a_message_is_read_back() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            record = NewRecord(b"\x00key", b"\xffvalue", (("a", b"1"), ("a", b"2"), ("ü", None), ("", b"")))
            tombstone = NewRecord(b"", None)
            await node.publisher.publish(
                "orders", [NewMessage(record, 0), NewMessage(tombstone, 0)], acks=Acks.ALL
            )
            first, second = await read_all(node)
            assert (first.key, first.value, first.headers) == (record.key, record.value, record.headers)
            assert (second.key, second.value, second.headers) == (b"", None, ())

        await world.live(life)

    simulate(main)


def test_one_request_may_fill_several_partitions() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=4)
            request = [
                message
                for at in range(40)
                for message in messages(b"%d" % at, key=b"key %d" % at, partition=None)
            ]
            done = await node.publisher.publish("orders", request, acks=Acks.ALL)
            found = {
                (partition, record.offset): record.value
                for partition in range(4)
                for record in await read_all(node, "orders", partition)
            }
            assert len({partition for partition, _ in found}) == 4
            assert {
                (one.partition, one.offset): message.record.value
                for one, message in zip(done, request, strict=True)
            } == found

        await world.live(life)

    simulate(main)
