"""Spark Connect: a client without a JVM reads, writes and streams through a server."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from tests.support.broker import Broker
from tests.support.spark_cluster import connect_server, only_in_soak
from tests.support.spark_work_topics import check, prepare, run_elsewhere


@only_in_soak
def test_client_of_a_server_reads_writes_and_streams(
    shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    request = prepare(shared_broker, topic, tmp_path)
    with connect_server(tmp_path) as remote:
        request = replace(request, remote=remote, is_archived=True)
        check(shared_broker, request, run_elsewhere(request))
