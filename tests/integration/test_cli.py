"""The command line against a real broker process."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.support.broker import Broker, Process, clean_environment, command_line

from goqueue.client.rest import NewMessage, RestClient

Completed = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("cli") / "data") as running:
        yield running


@pytest.fixture
def broker(served: Broker) -> Iterator[Broker]:
    """One that has no topics yet and goes on after the test; who ends it has its `own`."""
    yield served
    with RestClient(served.url) as client:
        for topic in client.topics():
            client.delete_topic(topic.name)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as running:
        yield running


def run(*args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Completed:
    return subprocess.run(
        command_line(*args),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(env),
        check=False,
    )


def goqueue(broker: Broker, *args: str, stdin: str = "") -> Completed:
    return run(*args, stdin=stdin, env={"GOQUEUE_URL": broker.url})


def succeed(broker: Broker, *args: str, stdin: str = "") -> str:
    done = goqueue(broker, *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def create(broker: Broker, *args: str) -> None:
    succeed(broker, "topic", "create", "orders", *args)


def test_what_is_produced_is_consumed(broker: Broker) -> None:
    create(broker, "--partitions", "3")
    succeed(broker, "produce", "orders", "one", "two", "three")
    printed = succeed(broker, "consume", "orders", "--from-beginning")
    assert sorted(printed.splitlines()) == ["one", "three", "two"]


def test_lines_of_stdin_and_of_a_file_are_produced_in_order(broker: Broker, tmp_path: Path) -> None:
    create(broker, "--partitions", "1")
    lines = [f"line {number}" for number in range(1_201)]
    stored = succeed(broker, "produce", "orders", "-", "-o", "json", stdin="\n".join(lines))
    assert json.loads(stored) == {
        "topic": "orders",
        "stored": 1_201,
        "refused": 0,
        "partitions": [{"partition": 0, "count": 1_201, "offset_first": 0, "offset_last": 1_200}],
    }
    (tmp_path / "lines").write_text("from a file\n", encoding="utf-8")
    succeed(broker, "produce", "orders", "--file", str(tmp_path / "lines"), "--batch-size", "1")
    assert succeed(broker, "consume", "orders", "--from-beginning").splitlines() == [*lines, "from a file"]


def test_keys_headers_and_partitions_arrive(broker: Broker) -> None:
    create(broker, "--partitions", "2")
    succeed(broker, "produce", "orders", "k1:a", "k2:b:c", "--key-separator", ":", "--partition", "1")
    succeed(
        broker,
        "produce",
        "orders",
        "d",
        "--key",
        "k3",
        "--header",
        "x=1",
        "--header",
        "y=a=b",
        "--partition",
        "1",
    )
    assert succeed(broker, "consume", "orders", "--from-beginning", "--partition", "0") == ""
    printed = succeed(
        broker, "consume", "orders", "--from-beginning", "--format", r"{partition} {offset}\t{key}={value}"
    )
    assert printed.splitlines() == ["1 0\tk1=a", "1 1\tk2=b:c", "1 2\tk3=d"]
    line = json.loads(
        succeed(broker, "consume", "orders", "--partition", "1", "--offset", "2", "--format", "json")
    )
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "topic": "orders",
        "partition": 1,
        "offset": 2,
        "key": "k3",
        "value": "d",
        "headers": {"x": "1", "y": "a=b"},
    }


def test_a_line_without_its_key_stops_the_producer(broker: Broker) -> None:
    create(broker)
    done = goqueue(
        broker, "produce", "orders", "--stdin", "--key-separator", ":", "--batch-size", "1", stdin="k:v\nv\n"
    )
    assert done.returncode == 1
    assert done.stderr == "error: b'v' has no key: ':' is not in it; 1 messages were stored before\n"


def test_refused_messages_are_counted_and_the_command_fails(broker: Broker) -> None:
    create(broker, "--partitions", "1", "--config", "max.message.bytes=1024")
    done = goqueue(broker, "produce", "orders", "small", "x" * 2_000, "also small", "-o", "json")
    assert done.returncode == 1
    assert "1 of 3 messages were refused; the first: " in done.stderr
    assert "MESSAGE_TOO_LARGE" in done.stderr
    assert json.loads(done.stdout)["stored"] == 2


def test_a_limit_ends_reading(broker: Broker) -> None:
    create(broker, "--partitions", "1")
    succeed(broker, "produce", "orders", "a", "b", "c")
    assert succeed(broker, "consume", "orders", "--from-beginning", "--limit", "2") == "a\nb\n"


def test_following_prints_what_arrives_and_only_that(broker: Broker) -> None:
    create(broker, "--partitions", "3")
    succeed(broker, "produce", "orders", "before")
    with Process("consume", "orders", "--follow", "--url", broker.url) as follower:
        follower.stderr.wait_for("following orders")
        succeed(broker, "produce", "orders", "first")
        follower.stdout.wait_for("^first$")
        succeed(broker, "produce", "orders", "second")
        follower.stdout.wait_for("^second$")
        follower.signal(signal.SIGINT)
        assert follower.wait() == 130
        assert follower.stdout.text() == "first\nsecond\n"
        assert follower.stderr.text() == "following orders; Ctrl-C ends\n"


def test_following_from_the_beginning_with_a_limit_ends_by_itself(broker: Broker) -> None:
    create(broker, "--partitions", "1")
    succeed(broker, "produce", "orders", "a")
    with Process(
        "consume", "orders", "-f", "--from-beginning", "--limit", "2", "--url", broker.url
    ) as follower:
        follower.stdout.wait_for("^a$")
        succeed(broker, "produce", "orders", "b")
        assert follower.wait() == 0
        assert follower.stdout.text() == "a\nb\n"


def test_reading_can_be_bounded_by_time(broker: Broker) -> None:
    create(broker, "--partitions", "1")
    instants = publish_at_distinct_instants(broker, ["a", "b", "c"])
    bounded = ("consume", "orders", "--from-time", instants[1])
    assert succeed(broker, *bounded) == "b\nc\n"
    assert succeed(broker, *bounded, "--to-time", instants[2]) == "b\n"
    assert succeed(broker, "consume", "orders", "--from-beginning", "--to-time", instants[1]) == "a\n"
    assert succeed(broker, "consume", "orders", "--from-time", "2100-01-01T00:00:00Z") == ""


def publish_at_distinct_instants(broker: Broker, values: list[str]) -> list[str]:
    """Each value at a later millisecond than the one before; what shares one is published elsewhere first."""
    instants: list[str] = []
    with RestClient(broker.url) as client:
        client.create_topic("clock", partition_count=1)
        for value in values:
            while instants and instants[-1] == publish(client, "clock", "tick"):
                continue
            instants.append(publish(client, "orders", value))
    return instants


def publish(client: RestClient, topic: str, value: str) -> str:
    [result] = client.publish(topic, [NewMessage(value.encode())])
    assert result.error is None
    return client.read(topic, 0, offset=result.offset).messages[0].timestamp


def test_a_topic_is_created_listed_described_altered_and_deleted(broker: Broker) -> None:
    created = json.loads(
        succeed(broker, "topic", "create", "orders", "-p", "2", "-c", "retention.ms=60000", "-o", "json")
    )
    assert (created["name"], created["partitions"]) == ("orders", 2)
    assert [topic["name"] for topic in json.loads(succeed(broker, "-o", "json", "topic", "list"))] == [
        "orders"
    ]
    described = yaml.safe_load(succeed(broker, "topic", "describe", "orders", "-o", "yaml"))
    assert described["topic"]["config"]["retention.ms"] == "60000"
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1]
    succeed(
        broker, "topic", "alter", "orders", "-c", "segment.bytes=4096", "--unset", "retention.ms", "--yes"
    )
    table = succeed(broker, "topic", "describe", "orders").splitlines()
    assert any(line.split() == ["segment.bytes", "4096", "topic"] for line in table)
    assert any(line.split() == ["retention.ms", "604800000", "default"] for line in table)
    assert goqueue(broker, "topic", "create", "orders").returncode == 1
    succeed(broker, "topic", "delete", "orders", "--yes")
    assert succeed(broker, "topic", "list").split() == ["TOPIC", "PARTITIONS", "CREATED"]


def test_deleting_asks_first(broker: Broker) -> None:
    create(broker)
    for answer in ("n\n", ""):
        refused = goqueue(broker, "topic", "delete", "orders", stdin=answer)
        assert refused.returncode == 1
        assert "nothing was changed" in refused.stderr
    succeed(broker, "topic", "describe", "orders")
    succeed(broker, "topic", "delete", "orders", stdin="y\n")
    assert goqueue(broker, "topic", "describe", "orders").returncode == 1


def test_an_error_of_the_broker_is_one_sentence(broker: Broker) -> None:
    done = goqueue(broker, "consume", "nothing", "--from-beginning")
    assert done.returncode == 1
    assert done.stderr == "error: topic 'nothing' does not exist; create it with POST /topics\n"


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = run("topic", "list", "--url", url)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: no answer from the broker at {url}: connection refused\n",
    )


def test_a_reader_that_goes_away_ends_the_consumer_quietly(broker: Broker) -> None:
    create(broker, "--partitions", "1")
    succeed(broker, "produce", "orders", "-", stdin=f"{'x' * 100}\n" * 5_000)
    consumer = subprocess.Popen(
        command_line("consume", "orders", "--from-beginning", "--url", broker.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    with consumer, consumer.stderr:
        consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.stderr.read() == b""


def test_a_stopped_brokers_folder_checks_clean(own: Broker) -> None:
    create(own, "--partitions", "2")
    succeed(own, "produce", "orders", "a", "b", "c")
    assert own.stop() == 0
    done = run("check", str(own.data_dir), "-o", "json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["records"] >= 3


def test_a_flipped_byte_is_found(own: Broker) -> None:
    create(own, "--partitions", "1")
    succeed(own, "produce", "orders", "the first value")
    succeed(own, "produce", "orders", "the second value")
    assert own.stop() == 0
    log = own.data_dir / "logs" / "orders" / "0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"first")] ^= 1
    log.write_bytes(content)
    done = run("check", str(own.data_dir))
    assert done.returncode == 1
    assert "checksum" in done.stdout
    assert f"{own.data_dir} is damaged" in done.stderr


def test_a_folder_in_use_is_neither_checked_nor_served(broker: Broker) -> None:
    for command in (
        ("check", str(broker.data_dir)),
        ("serve", "--data-dir", str(broker.data_dir), "--http", "[::1]:0"),
    ):
        done = run(*command)
        assert done.returncode == 1
        assert f"is held by pid {broker.pid} on " in done.stderr
        assert "Traceback" not in done.stderr


def test_a_broker_starts_again_after_kill_9_with_everything_acknowledged(own: Broker) -> None:
    create(own, "--partitions", "1")
    succeed(own, "produce", "orders", "a", "b", "--acks", "all")
    own.kill9()
    with Broker(own.data_dir) as again:
        assert succeed(again, "consume", "orders", "--from-beginning") == "a\nb\n"


def test_sigterm_and_ctrl_c_stop_a_broker_cleanly_with_one_line_on_stdout(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with Broker(tmp_path / "data") as broker:
            broker.signal(number)
            assert broker.wait() == 0
            assert broker.stdout.text() == f"ready http={broker.address} kafka={broker.kafka}\n"
            assert "Traceback" not in broker.stderr.text()


def test_a_stopping_broker_lets_waiting_readers_go(own: Broker) -> None:
    create(own)
    with Process("consume", "orders", "--follow", "--url", own.url) as follower:
        follower.stderr.wait_for("following orders")
        assert own.stop() == 0
        assert follower.wait() == 1
        assert "error: " in follower.stderr.text()
        assert "Traceback" not in follower.stderr.text()


def test_a_second_signal_ends_a_broker_that_waits_for_a_request(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env={"GOQUEUE_DRAIN_TIMEOUT_MS": "600000"}) as broker:
        host, _, port = broker.address.rpartition(":")
        with socket.create_connection((host, int(port))) as unfinished:
            unfinished.sendall(b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            succeed(broker, "topic", "list")
            broker.signal(signal.SIGTERM)
            broker.stderr.wait_for("stopping signal=SIGTERM")
            broker.signal(signal.SIGTERM)
            assert broker.wait() == 128 + signal.SIGTERM


def test_an_address_in_use_is_one_sentence(broker: Broker, tmp_path: Path) -> None:
    done = run(
        "serve", "--data-dir", str(tmp_path / "other"), "--http", broker.address, "--log-level", "error"
    )
    assert (done.returncode, done.stderr) == (
        1,
        f"error: cannot listen on {broker.address}: address already in use\n",
    )


def test_an_open_address_without_authentication_is_warned_about(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", http="0.0.0.0:0") as open_to_all:
        open_to_all.stderr.wait_for("warning: 0.0.0.0:.* there is no authentication")
    with Broker(tmp_path / "data") as local:
        local.stop()
        assert "authentication" not in local.stderr.text()


def test_the_hints_work_as_printed(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    with Broker(tmp_path / "data", "--hints") as broker:
        broker.stderr.wait_for("try: curl .*offset=0")
        hints = [line[5:] for line in broker.stderr.text().splitlines() if line.startswith("try: curl")]
        answers = [
            subprocess.check_output(["bash", "-c", f"{hint} -sS --noproxy '*'"], text=True) for hint in hints
        ]
        assert json.loads(answers[-1])["messages"][0]["value"] == "hello"


def test_all_configuration_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text("node_idd = 'x'\n", encoding="utf-8")
    env = {"GOQUEUE_DISK__WARN_PERCENT": "200"}
    done = run("serve", "--config", str(file), "--http", "nowhere", env=env)
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.split(" = ")[0] for line in done.stderr.splitlines()] == [
        f"error: {file}: node_idd",
        "error: environment: GOQUEUE_DISK__WARN_PERCENT",
        "error: command line: --http",
    ]


def test_the_configuration_in_force_names_its_sources(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text("node_id = 'blue'\n", encoding="utf-8")
    shown = run("config", "show", "--config", str(file), "-o", "json", env={"GOQUEUE_HTTP": "127.0.0.1:1"})
    values = json.loads(shown.stdout)
    assert values["node_id"] == {"value": "blue", "source": str(file)}
    assert values["http"] == {"value": "127.0.0.1:1", "source": "environment: GOQUEUE_HTTP"}
    assert values["topic_defaults.retention.ms"]["source"] == "default"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ("nonsense", "No such command"),
        ("topic create", "Missing argument"),
        ("topic create t --config x", "NAME=VALUE"),
        ("topic alter t --yes", "nothing to change"),
        ("produce t", "give messages"),
        ("produce t a --stdin", "one of them"),
        ("produce t a --key k --key-separator :", "not both"),
        ("produce t a --acks some", "some"),
        ("consume t", "add --from-beginning, --offset, --from-time or --follow"),
        ("consume t --offset 1", "--offset needs --partition"),
        ("consume t --from-beginning --from-time 0", "give one of"),
        ("consume t --from-time yesterday", "is not an instant"),
        ("consume t --follow --to-time 5", "--follow has no end"),
        ("consume t --from-beginning --format {nope}", "{nope} is not a field"),
        ("topic list --url nowhere", "is not a broker's address"),
        ("topic list -o xml", "xml"),
        ("check /does/not/exist", "does not exist"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_right(args: str, reason: str) -> None:
    done = run(*args.split())
    assert done.returncode == 2, done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
