"""Batches as librdkafka (the C client below confluent-kafka) sends them: captured from a real producer by a
listener that knows just enough of Kafka's protocol to be produced to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer

from goqueue.log.batch import decode_batch, validate_new
from goqueue.log.compression import Codec, codec_of

TOPIC = "captured"
BATCH_BYTES_MAX = 1024 * 1024
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
UNSUPPORTED_VERSION = 35
# librdkafka derives its features from these: magic 2 needs Produce 3 and Fetch 4, zstd Produce 7 and Fetch 10.
VERSIONS = ((PRODUCE, 3, 7), (1, 4, 10), (2, 1, 1), (METADATA, 4, 4), (10, 0, 2), (API_VERSIONS, 0, 0))


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, form: str) -> int:
        (number,) = struct.unpack_from(">" + form, self.data, self.position)
        self.position += struct.calcsize(">" + form)
        return int(number)

    def block(self, length_form: str) -> bytes | None:
        length = self.take(length_form)
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class ProduceCapture:
    """A Kafka broker with one topic that keeps the record sets it is sent."""

    def __init__(self) -> None:
        self.record_sets: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for opened in (self._listener, *self._connections):
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(timeout=60)
        for opened in (self._listener, *self._connections):
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while len(size := stream.read(4)) == 4:
                request = Cursor(stream.read(struct.unpack(">i", size)[0]))
                key, version, correlation = request.take("h"), request.take("h"), request.take("i")
                body = self._answer(key, version, request)
                connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
        except OSError:
            pass
        finally:
            stream.close()

    def _answer(self, key: int, version: int, request: Cursor) -> bytes:
        if key == API_VERSIONS:
            error = UNSUPPORTED_VERSION if version else 0
            return struct.pack(">hi", error, len(VERSIONS)) + b"".join(
                struct.pack(">hhh", *row) for row in VERSIONS
            )
        request.block("h")  # client id
        return self._metadata() if key == METADATA else self._produce(request)

    def _metadata(self) -> bytes:
        broker = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        topic = struct.pack(">h", 0) + text(TOPIC) + struct.pack(">?i", False, 1) + partition
        cluster = text("capture") + struct.pack(">i", 1)
        return struct.pack(">ii", 0, 1) + broker + cluster + struct.pack(">i", 1) + topic

    def _produce(self, request: Cursor) -> bytes:
        request.block("h")  # transactional id
        request.take("h"), request.take("i")  # acks, timeout
        assert request.take("i") == 1
        assert request.block("h") == TOPIC.encode()
        assert (request.take("i"), request.take("i")) == (1, 0)
        record_set = request.block("i")
        assert record_set is not None
        self.record_sets.append(record_set)
        answer = struct.pack(">iihqqq", 1, 0, 0, 0, -1, 0)
        return struct.pack(">i", 1) + text(TOPIC) + answer + struct.pack(">i", 0)


@pytest.fixture
def capture() -> Iterator[ProduceCapture]:
    running = ProduceCapture()
    yield running
    running.close()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_batch_of_librdkafka_is_accepted_and_decoded(capture: ProduceCapture, codec: Codec) -> None:
    producer = LibrdkafkaProducer(
        {
            "bootstrap.servers": f"127.0.0.1:{capture.port}",
            "broker.address.family": "v4",
            "compression.type": codec.name.lower(),
            "linger.ms": 50,
            "message.timeout.ms": 20_000,
        }
    )
    sent = [
        (1_700_000_000_000 + 7 * at * (-1) ** at, b"key %d" % (at % 3), b"a value that repeats itself" * at)
        for at in range(20)
    ]
    errors: list[object] = []
    for timestamp, key, value in sent:
        producer.produce(
            TOPIC,
            value,
            key,
            partition=0,
            timestamp=timestamp,
            headers=[("h", b"1"), ("h", None), ("ü", b"")],
            on_delivery=lambda error, _message: errors.append(error),
        )
    producer.produce(TOPIC, None, None, partition=0, timestamp=1, on_delivery=lambda e, _m: errors.append(e))
    assert producer.flush(30) == 0
    assert errors == [None] * 21
    records = []
    for batch in capture.record_sets:
        header = validate_new(batch, BATCH_BYTES_MAX)
        assert codec_of(header.attributes) is codec
        records += list(decode_batch(batch, header))
    headers = (("h", b"1"), ("h", None), ("ü", b""))
    found = [(record.timestamp_ms, record.key, record.value, record.headers) for record in records]
    assert found == [(*row, headers) for row in sent] + [(1, None, None, ())]
