"""librdkafka's mock cluster, served until stdin ends. A child process.

It is the ceiling of the client, not a broker: it keeps the newest 5 MB of each partition in memory, never writes,
and lets a fetch that finds nothing wait its whole time even if something arrives. A line on stdin, `NAME COUNT`,
creates a topic. The configuration `test.mock.num.brokers` cannot do that, so the C interface is used directly.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import confluent_kafka

_PRODUCER = 0
_ERROR_BYTES = 512


def load_librdkafka() -> ctypes.CDLL:
    """The very library that confluent-kafka brought along."""
    package = Path(confluent_kafka.__file__).parent
    (path,) = (package.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_new.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_mock_topic_create.argtypes = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_int,
    )
    return library


def main() -> None:
    library = load_librdkafka()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    client = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), error, _ERROR_BYTES)
    if not client:
        raise SystemExit(error.value.decode())
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    print(f"ready kafka={library.rd_kafka_mock_cluster_bootstraps(cluster).decode()}", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        code = library.rd_kafka_mock_topic_create(cluster, name.encode(), int(count), 1)
        print(code, flush=True)


if __name__ == "__main__":
    main()
