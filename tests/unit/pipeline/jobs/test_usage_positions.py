"""How far groups have come, whose topics are whose, and what a report makes of both."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.usage.job import UsageRequest, report_of
from goqueue.pipeline.jobs.usage.measures import tenant_of
from goqueue.pipeline.jobs.usage.positions import Position, Stretch, bytes_of_files, stretches
from goqueue.pipeline.origin import Origin

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_group_has_read_what_lies_between_two_reports() -> None:
    before = [Position("g", "t", 0, 10, 20), Position("g", "t", 1, 5, 5), Position("g", "t", 2, 9, 9)]
    now = [
        Position("g", "t", 0, 15, 30),
        Position("g", "t", 1, 5, 8),
        Position("g", "t", 2, 4, 9),
        Position("new", "t", 0, 30, 30),
    ]
    moved, back = stretches(before, now)
    assert moved == [Stretch("g", "t", 0, 10, 15)]
    assert back == [Position("g", "t", 2, 4, 9)]


def test_lag_is_never_negative() -> None:
    assert [Position("g", "t", 0, 3, 10).lag, Position("g", "t", 0, 10, 3).lag] == [7, 0]


@pytest.mark.parametrize(
    ("topic", "tenant"),
    [
        ("acme.orders", "acme"),
        ("acme.orders.eu", "acme"),
        ("orders", "default"),
        ("orders.dlq", "default"),
        ("acme.orders.dlq", "acme"),
    ],
)
def test_tenant_is_what_stands_before_the_first_dot(topic: str, tenant: str) -> None:
    assert tenant_of(topic) == tenant


def test_report_has_topics_groups_and_hours() -> None:
    hours = [
        Row(tenant="acme", topic="acme.a", hour=NOON, messages=2, bytes=20),
        Row(tenant="acme", topic="acme.a", hour=NOON.replace(hour=11), messages=1, bytes=5),
    ]
    positions = [Position("g", "acme.a", 0, 1, 3), Position("g", "acme.a", 1, 0, 4)]
    read = [Row(group="g", topic="acme.a", messages=1, bytes=5)]
    report = report_of(hours, {"acme.a": 99, "b": 0}, positions, read)
    assert report.counts == {
        "tenants": 2,
        "topics": 2,
        "groups": 1,
        "messages": 3,
        "bytes": 25,
        "stored_bytes": 99,
    }
    assert report.rows == [
        ("topic", "acme", "acme.a", None, None, 3, 25, 99, None),
        ("topic", "default", "b", None, None, 0, 0, 0, None),
        ("group", "acme", "acme.a", "g", None, 1, 5, None, 6),
        ("hour", "acme", "acme.a", None, "2026-01-01T11:00:00.000Z", 1, 5, None, None),
        ("hour", "acme", "acme.a", None, "2026-01-01T12:00:00.000Z", 2, 20, None, None),
    ]


def test_stored_bytes_are_those_of_the_segments(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "orders" / "0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"x" * 100)
    (folder / "00000000000000000000.index").write_bytes(b"x" * 7)
    assert bytes_of_files(str(tmp_path), {"orders": 2}) == {"orders": 100}


def test_request_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(OptionError, match="format is 'xml'; it must be parquet or csv"):
        UsageRequest(Origin(), format="xml")
    with pytest.raises(OptionError, match="give its url and no times"):
        UsageRequest(Origin(), previous="old", url="http://h:1", time_min_ms=1)
    with pytest.raises(OptionError, match="give its url and no times"):
        UsageRequest(Origin(), previous="old")
    with pytest.raises(OptionError, match="leave out the broker's url"):
        UsageRequest(Origin(path="/data"), url="http://h:1")
    with pytest.raises(OptionError, match="name the topics whose archives"):
        UsageRequest(Origin(), lake="/lake")
