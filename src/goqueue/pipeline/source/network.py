"""Topics over the network, from the leaders of their partitions, as any Kafka consumer fetches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goqueue.client.kafka.cluster import KafkaCluster
from goqueue.client.kafka.errors import OffsetOutOfRange
from goqueue.client.kafka.offsets import EARLIEST, LATEST
from goqueue.pipeline.connection import CLIENT_ID, Connection
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.span import Aborted, Chunk, Place, Span

_NOT_FOUND = -1


def connect(connection: Connection, *, timeout_s: float | None = None) -> KafkaCluster:
    return KafkaCluster(
        connection.bootstrap,
        security=connection.security,
        client_id=CLIENT_ID,
        timeout_s=timeout_s or connection.timeout_s,
    )


class NetworkTransport:
    """One client of a cluster. Restarts of brokers and moves of leaders are the client's business."""

    def __init__(self, connection: Connection, *, fetch_bytes: int) -> None:
        self._cluster = connect(connection)
        self._fetch_bytes = fetch_bytes

    def topics(self) -> dict[str, int]:
        return self._cluster.topics()

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, EARLIEST, committed=False)

    def latest(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        return self._offsets(places, LATEST, committed=committed)

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
        found = self._offsets(places, timestamp_ms, committed=False)
        return {place: None if offset == _NOT_FOUND else offset for place, offset in found.items()}

    def read(self, span: Span, *, committed: bool) -> Iterator[Chunk]:
        try:
            for fetched in self._cluster.fetch(*span, committed=committed, bytes_max=self._fetch_bytes):
                yield Chunk(fetched.data, tuple(Aborted(*one) for one in fetched.aborted))
        except OffsetOutOfRange as error:
            raise DataLoss(
                f"offsets of {span.topic}-{span.partition} from {error.offset} on were to be read up to {span.end} and are gone: "
                f"it has [{error.log_start}, {error.high_watermark})"
            ) from error

    def close(self) -> None:
        self._cluster.close()

    def _offsets(self, places: Iterable[Place], at: int, *, committed: bool) -> dict[Place, int]:
        found = self._cluster.offsets(places, at, committed=committed)
        return {Place(topic, partition): offset for (topic, partition), offset in found.items()}
