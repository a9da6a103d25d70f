"""The arithmetic and the checks of the benchmark's Kafka lines; tests/integration/test_bench_load.py runs the load."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bench import report as bench_report
from bench.child import listening_ports
from bench.kafka_bench import Side
from bench.kafka_client import RequestCounts
from bench.kafka_lines import compare
from bench.kafka_pace import Schedule
from bench.kafka_values import Readback, value_of
from bench.line import BenchFailed, Bound, Goal, Line, spread
from bench.machine import describe_machine
from bench.peers import apache_kafka
from bench.peers.maven import fetch_jars, find_repository, mirror_in, read_pins
from bench.peers.peer import PeerAbsent
from bench.report import BEGIN, BEGIN_CLUSTER, END, Report, save, write_docs
from bench.sides import interleave

PINS = Path(apache_kafka.__file__).with_suffix(".sha256")


class NoServer:
    """Sides are told apart by name only here; nothing is sent."""

    address = "nowhere"
    pid = 0

    def create_topic(self, name: str, *, partition_count: int, is_synced: bool = False) -> None:
        raise AssertionError("not to be used")

    def delete_topic(self, name: str) -> None:
        raise AssertionError("not to be used")


def side(name: str) -> Side:
    return Side(name, f"Server {name}", NoServer(), is_broker=True)


def repository(folder: Path, content: bytes) -> dict[str, str]:
    """With one jar; its pins."""
    (folder / "org" / "a").mkdir(parents=True)
    (folder / "org" / "a" / "a.jar").write_bytes(content)
    return {"org/a/a.jar": hashlib.sha256(content).hexdigest()}


def test_messages_that_are_all_read_once_and_in_order_are_accepted() -> None:
    readback = Readback(4, 20)
    for partition, index in ((0, 0), (1, 1), (0, 3), (1, 2)):
        assert readback.add(partition, value_of(index, 20)) == index
    readback.require_everything()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (value_of(0, 20), "twice"),
        (value_of(1, 20), "out of order"),
        (value_of(9, 20), "never sent"),
        (value_of(3, 21), "other bytes"),
        (b"something else", "begins with"),
        (None, "without a value"),
    ],
)
def test_a_message_that_is_not_what_was_sent_fails_the_run(value: bytes | None, reason: str) -> None:
    readback = Readback(4, 20)
    readback.add(0, value_of(0, 20))
    readback.add(0, value_of(2, 20))
    with pytest.raises(BenchFailed, match=reason):
        readback.add(0, value)


def test_a_message_that_is_not_read_fails_the_run() -> None:
    readback = Readback(2, 20)
    readback.add(0, value_of(0, 20))
    with pytest.raises(BenchFailed, match="2 were sent, 1 read"):
        readback.require_everything()


def test_a_fast_schedule_ticks_once_a_millisecond_and_a_slow_one_once_per_message() -> None:
    fast = Schedule(begin=1.0, per_s=10_000, warm_count=0, count=100)
    assert [fast.due(index) for index in (0, 9, 10)] == pytest.approx([1.0, 1.0, 1.001])
    slow = Schedule(begin=1.0, per_s=20, warm_count=0, count=100)
    assert [slow.due(index) for index in (0, 1, 2)] == pytest.approx([1.0, 1.05, 1.1])


def test_requests_are_counted_over_all_brokers_and_only_within_the_time_measured() -> None:
    counts = RequestCounts("Fetch")
    for second, first, other in ((1, 5, 0), (2, 10, 10), (4, 100, 20), (9, 900, 900)):
        brokers = (
            f'{{"a": {{"req": {{"Fetch": {first}}}}}, "b": {{"req": {{"Fetch": {other}, "Produce": 7}}}}}}'
        )
        counts.take(f'{{"ts": {second * 1_000_000}, "brokers": {brokers}}}')
    assert counts.per_s(2_000_000, 5_000_000) == 50.0
    with pytest.raises(BenchFailed, match="too few statistics"):
        counts.per_s(5_000_000, 9_500_000)


def test_every_round_begins_with_another_side() -> None:
    order: list[str] = []
    interleave([side("a"), side("b"), side("c")], 3, lambda one: order.append(one.name))
    assert "".join(order) == "abcbcacab"


def test_ours_is_compared_with_each_peer_round_by_round() -> None:
    lines = compare(
        [side("ours"), side("kafka"), side("mock")],
        {"ours": [10.0, 30.0, 80.0], "kafka": [20.0, 10.0, 40.0], "mock": [100.0, 100.0, 100.0]},
        name="line",
        title="title",
        unit="msg/s",
        value=lambda sample: sample,
        figures={"half": lambda sample: sample / 2},
        goals={"kafka": Goal(Bound.RATIO_AT_LEAST, 1.0)},
    )
    kafka, mock = lines
    assert (kafka.name, mock.name) == ("line.vs_kafka", "line.vs_mock")
    assert kafka.ratio is not None
    assert kafka.ratio.median == 2.0
    assert (kafka.is_met, mock.is_met) == (True, None)
    assert kafka.details == {"half": 15.0, "kafka_half": 10.0}


def test_without_a_peer_there_is_a_line_but_no_ratio() -> None:
    (line,) = compare(
        [side("ours")],
        {"ours": [1.0]},
        name="line",
        title="title",
        unit="s",
        value=lambda sample: sample,
        figures={},
    )
    assert (line.name, line.ratio, line.reference) == ("line", None, None)


def test_a_ready_line_names_its_listeners() -> None:
    assert listening_ports("ready http=127.0.0.1:80 kafka=[::1]:90") == {"http": 80, "kafka": 90}


def test_jars_are_downloaded_once_and_checked_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = repository(tmp_path / "repository", b"jar")
    monkeypatch.setenv("MAVEN_REPOSITORY", (tmp_path / "repository").as_uri())
    (jar,) = fetch_jars(pins, tmp_path / "cache")
    jar.write_bytes(b"damaged")
    assert fetch_jars(pins, tmp_path / "cache") == [jar]
    assert jar.read_bytes() == b"jar"
    (tmp_path / "repository" / "org" / "a" / "a.jar").unlink()
    assert fetch_jars(pins, tmp_path / "cache") == [jar]


def test_a_jar_with_another_content_than_its_pin_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = repository(tmp_path / "repository", b"jar")
    monkeypatch.setenv("MAVEN_REPOSITORY", (tmp_path / "repository").as_uri())
    (tmp_path / "repository" / "org" / "a" / "a.jar").write_bytes(b"other")
    with pytest.raises(PeerAbsent, match="another SHA-256"):
        fetch_jars(pins, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_jar_that_cannot_be_downloaded_makes_the_peer_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAVEN_REPOSITORY", tmp_path.as_uri())
    with pytest.raises(PeerAbsent, match="cannot be downloaded"):
        fetch_jars({"org/a/a.jar": "0" * 64}, tmp_path / "cache")


def test_without_any_repository_the_peer_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAVEN_REPOSITORY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerAbsent, match="set MAVEN_REPOSITORY"):
        find_repository()


def test_only_a_mirror_of_the_central_repository_is_taken_from_maven_settings() -> None:
    settings = (
        '<settings xmlns="urn:settings"><mirrors>'
        "<mirror><mirrorOf>external:http:*</mirrorOf><url>blocked:</url></mirror>"
        "<mirror><mirrorOf>other, central</mirrorOf><url>file:///mirror</url></mirror>"
        "</mirrors></settings>"
    )
    assert mirror_in(settings) == "file:///mirror"
    assert mirror_in("<settings/>") is None


def test_every_pin_is_a_jar_with_its_sha256() -> None:
    pins = read_pins(PINS)
    assert apache_kafka.kafka_version(pins).startswith("4.")
    assert all(name.endswith(".jar") and len(bytes.fromhex(digest)) == 32 for name, digest in pins.items())


def test_an_absent_peer_stands_in_the_table_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "benchmarks.md"
    docs.write_text(f"before\n{BEGIN}\nold\n{END}\nafter", encoding="utf-8")
    monkeypatch.setattr(bench_report, "DOCS", docs)
    goal = Goal(Bound.RATIO_AT_MOST, 3.0)
    line = Line("line", "title", "ms", spread([1.0]), "probe", spread([2.0]), spread([0.5]), goal)
    result = Report(
        datetime.now(UTC), False, False, 1.0, describe_machine(), [line], {"kafka": "there is no java"}
    )
    write_docs(save(result, tmp_path / "result.json"))
    text = docs.read_text(encoding="utf-8")
    assert "| peer kafka | absent: there is no java |  |  |  |  |  |" in text
    assert "| ratio ≤ 3 | met |" in text


def test_lines_of_the_cluster_have_a_table_of_their_own_and_leave_the_other_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "benchmarks.md"
    monkeypatch.setattr(bench_report, "DOCS", docs)
    tables = f"{BEGIN}\none\n{END}\n{BEGIN_CLUSTER}\ntwo\n{END}\n"

    def written(*names: str) -> list[str]:
        docs.write_text(tables, encoding="utf-8")
        lines = [Line(name, "title", "ms", spread([1.0])) for name in names]
        result = Report(datetime.now(UTC), False, True, 1.0, describe_machine(), lines, {})
        write_docs(save(result, tmp_path / "result.json"))
        return docs.read_text(encoding="utf-8").split(BEGIN_CLUSTER)

    other, cluster = written("cluster.idle")
    assert other == f"{BEGIN}\none\n{END}\n"
    assert "| cluster.idle |" in cluster
    other, cluster = written("rest.single", "cluster.idle")
    assert "| rest.single |" in other
    assert "cluster.idle" not in other
    assert "rest.single" not in cluster
