from __future__ import annotations

import pickle

import pytest

from goqueue.pipeline.columns import ALL_COLUMNS, KAFKA_COLUMNS
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.source.bounds import AtOffsets, AtTime, AtTimes, Earliest, Latest
from goqueue.pipeline.source.declared import SOURCE_OPTIONS
from goqueue.pipeline.source.options import (
    Limits,
    Mode,
    Sizes,
    SourceOptions,
    columns_asked_for,
    source_options,
)
from goqueue.pipeline.span import Place

NEEDED = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def batch(**given: str) -> SourceOptions:
    return source_options(
        NEEDED | {name.replace("_", "."): value for name, value in given.items()}, Mode.BATCH
    )


def stream(**given: str) -> SourceOptions:
    return source_options(
        NEEDED | {name.replace("_", "."): value for name, value in given.items()}, Mode.STREAM
    )


def refusal(given: dict[str, str], mode: Mode = Mode.BATCH) -> str:
    with pytest.raises(OptionError) as caught:
        source_options(given, mode)
    return str(caught.value)


def test_defaults_are_those_of_the_kafka_connector() -> None:
    assert (batch().starting, batch().ending, stream().starting) == (Earliest(), Latest(), Latest())
    assert batch().columns == KAFKA_COLUMNS
    assert batch().limits == Limits(None, None, None, 15 * 60_000)
    assert batch().sizes == Sizes(1, None, None)
    access = batch().access
    assert (access.committed, access.fails_on_loss, access.path) == (True, True, None)
    assert access.connection is not None
    assert (access.connection.bootstrap, access.connection.timeout_s) == ("127.0.0.1:9092", 30.0)
    assert batch().group_id is None
    assert not batch().pushes_filters


def test_names_are_taken_in_any_case_and_with_either_prefix() -> None:
    given = {
        "KAFKA.bootstrap.SERVERS": "h:1",
        "goqueue.subscribe": "a, b",
        "kafka.isolation.level": "READ_UNCOMMITTED",
    }
    options = source_options(given, Mode.STREAM)
    assert options.subscription.topics == ("a", "b")
    assert not options.access.committed
    assert options.access.connection is not None
    assert options.access.connection.bootstrap == "h:1"


def test_unknown_option_is_refused_with_the_nearest_names() -> None:
    assert (
        refusal({**NEEDED, "startingOffset": "earliest"})
        == "there is no option startingOffset; did you mean startingOffsets or startingOffsetsByTimestamp or endingOffsets?"
    )
    assert "did you mean maxOffsetsPerTrigger" in refusal({**NEEDED, "kafka.maxOffsetPerTriger": "1"})
    assert "zzz; there are assign, bootstrap.servers, columns" in refusal({**NEEDED, "zzz": "1"})
    for name in ("kafka.max.poll.records", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"):
        assert f"there is no option {name}; what only Kafka's clients have" in refusal({**NEEDED, name: "1"})


def test_all_problems_are_reported_at_once() -> None:
    told = refusal({"failOnDataLoss": "maybe", "minPartitions": "0", "nonsense": "1", "subscribe": "a,,b"})
    for part in (
        "failOnDataLoss cannot be 'maybe': write true or false",
        "minPartitions",
        "nonsense",
        "subscribe cannot be 'a,,b'",
    ):
        assert part in told
    told = refusal(
        {"subscribe": "a", "assign": '{"a": [0]}', "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "2"}
    )
    for part in (
        "subscribe and assign are given",
        "minOffsetsPerTrigger 5 is more than maxOffsetsPerTrigger 2",
        "bootstrap.servers is needed",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribe": ""}, "subscribe cannot be ''"),
        ({"subscribe": "a,a"}, "a name stands there twice"),
        ({"startingOffsets": "latest"}, "a batch cannot begin at latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "a batch cannot begin at latest"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "a batch cannot end at earliest"),
        ({"startingOffsets": "soon"}, "it is not JSON"),
        ({"startingOffsets": '{"orders": 1}'}, "each topic needs partitions with numbers"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, 'orders has "0": -3'),
        ({"startingOffsets": '{"orders": {"0": true}}'}, 'orders has "0": True'),
        ({"startingOffsets": "{}"}, "it names no partition"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 9223372036854775808}}'}, "orders has"),
        ({"startingOffsets": "[]"}, "write a JSON object"),
        ({"startingTimestamp": "-1"}, "a whole number of at least 0"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, 'orders has "0": -1'),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "write error or latest"),
        ({"maxTriggerDelay": "5m"}, "minOffsetsPerTrigger, which is not given"),
        ({"minPartitions": "9", "maxPartitions": "3"}, "minPartitions 9 is more than maxPartitions 3"),
        ({"columns": "key,colour"}, "columns has colour; there are key, value, topic"),
        ({"transport": "pigeon"}, "write network or files"),
        ({"path": "/backup"}, "path is for transport=files"),
        ({"transport": "files"}, "transport=files needs path"),
        ({"transport": "files", "path": "/b", "group.id": "g"}, "group.id has no meaning with transport=files"),
        ({"kafka.bootstrap.servers": "elsewhere:1"}, "are the same option with two values"),
        ({"security.protocol": "SASL_SSL"}, "write PLAINTEXT or SSL"),
        ({"ssl.ca.location": "/ca.pem"}, "certificates are given, and the protocol is not SSL"),
        ({"security.protocol": "ssl", "ssl.key.location": "/k"}, "needs its certificate"),
        ({"ssl.key.password": ""}, "ssl.key.password cannot be (hidden)"),
        ({"ssl.endpoint.identification.algorithm": "x"}, "write https, or none"),
        ({"request.timeout.ms": "0"}, "write more than 0"),
        ({"fetch.max.bytes": "12"}, "a whole number of at least 1024"),
        ({"isolation": "serializable"}, "write read_committed or read_uncommitted"),
    ],
)  # fmt: skip
def test_option_that_cannot_be_is_refused_with_what_would_be_right(given: dict[str, str], told: str) -> None:
    assert told in refusal(NEEDED | given)


@pytest.mark.parametrize("address", ["nowhere", "host:0", "host:70000", "host:1,", "http://host:1"])
def test_address_must_be_host_and_port(address: str) -> None:
    assert "bootstrap.servers cannot be" in refusal({"subscribe": "a", "bootstrap.servers": address})


@pytest.mark.parametrize("pattern", ["", "(", "a" * 1_001])
def test_pattern_must_be_a_regular_expression(pattern: str) -> None:
    assert "subscribePattern cannot be" in refusal({"bootstrap.servers": "h:1", "subscribePattern": pattern})


@pytest.mark.parametrize("assign", ["{}", "[]", '{"a": []}', '{"a": [-1]}', '{"a": [true]}', '{"a": 1}', "a"])
def test_assign_must_name_partitions(assign: str) -> None:
    assert "assign cannot be" in refusal({"bootstrap.servers": "h:1", "assign": assign})


def test_stream_has_no_ending() -> None:
    for name, value in [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "1"),
        ("endingOffsetsByTimestamp", '{"orders": {"0": 1}}'),
    ]:
        assert f"{name} is for batches" in refusal(NEEDED | {name: value}, Mode.STREAM)


def test_batch_says_which_limits_of_streams_it_ignores() -> None:
    assert batch(maxOffsetsPerTrigger="5").ignored == ("maxOffsetsPerTrigger",)
    assert stream(maxOffsetsPerTrigger="5").ignored == ()


def test_timestamp_comes_before_timestamps_and_those_before_offsets() -> None:
    by_time = '{"orders": {"0": 7}}'
    offsets = '{"orders": {"0": 3, "1": -2}}'
    assert batch(startingOffsets=offsets).starting == AtOffsets(
        ((Place("orders", 0), 3), (Place("orders", 1), -2))
    )
    assert batch(startingOffsets=offsets, startingOffsetsByTimestamp=by_time).starting == AtTimes(
        ((Place("orders", 0), 7),), is_strict=True
    )
    chosen = batch(
        startingOffsets=offsets, startingOffsetsByTimestamp=by_time, startingTimestamp="9",
        startingOffsetsByTimestampStrategy="latest",
    )  # fmt: skip
    assert chosen.starting == AtTime(9, is_strict=False)
    ends = batch(endingOffsets="latest", endingOffsetsByTimestamp=by_time)
    assert ends.ending == AtTimes(((Place("orders", 0), 7),), is_strict=False)
    assert batch(endingOffsetsByTimestamp=by_time, endingTimestamp="8").ending == AtTime(8, is_strict=False)


def test_columns_are_a_list_all_or_the_usual_ones_with_headers_if_wanted() -> None:
    assert columns_asked_for({**NEEDED, "columns": "Value, key"}) == ("value", "key")
    assert columns_asked_for({**NEEDED, "columns": "*"}) == ALL_COLUMNS
    assert columns_asked_for({**NEEDED, "includeHeaders": "true"}) == (*KAFKA_COLUMNS, "headers")
    assert columns_asked_for({**NEEDED, "columns": "*", "includeHeaders": "true"}) == ALL_COLUMNS


def test_limits_sizes_and_security_are_typed() -> None:
    options = stream(
        maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxTriggerDelay="30s", maxBytesPerTrigger="1000",
        minPartitions="2", maxPartitions="4", maxRecordsPerPartition="100", failOnDataLoss="False",
        security_protocol="SSL", ssl_ca_location="/ca", ssl_certificate_location="/cert", ssl_key_location="/key",
        ssl_key_password="secret", ssl_endpoint_identification_algorithm="", request_timeout_ms="2s", pushdown="true",
        fetch_max_bytes="65536",
    )  # fmt: skip
    assert options.limits == Limits(10, 5, 1_000, 30_000)
    assert options.sizes == Sizes(2, 4, 100)
    assert (options.access.fails_on_loss, options.access.fetch_bytes, options.pushes_filters) == (
        False,
        65_536,
        True,
    )
    connection = options.access.connection
    assert connection is not None
    assert connection.timeout_s == 2.0
    security = connection.security
    assert (security.protocol, security.ca_path, security.cert_path, security.key_path) == (
        "SSL",
        "/ca",
        "/cert",
        "/key",
    )
    assert (security.key_password, security.is_name_checked) == ("secret", False)
    assert "secret" not in repr(options)


def test_group_is_named_or_follows_from_the_prefix_and_the_subscription() -> None:
    assert stream(group_id="g", groupIdPrefix="p").group_id == "g"
    first = stream(groupIdPrefix="p").group_id
    assert first is not None
    assert first.startswith("p-")
    assert first == stream(groupIdPrefix="p").group_id
    assert first != stream(groupIdPrefix="p", subscribe="other").group_id


def test_files_need_no_broker() -> None:
    options = source_options(
        {"transport": "files", "path": "/b", "subscribe": "a", "onDamage": "skip"}, Mode.BATCH
    )
    assert (options.access.path, options.access.connection, options.access.skips_damage) == ("/b", None, True)


def test_options_cross_to_another_process() -> None:
    options = batch(startingOffsets='{"orders": {"0": 3}}')
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


def test_every_option_is_documented_and_named_once() -> None:
    names = [name.lower() for option in SOURCE_OPTIONS for name in option.names]
    assert len(set(names)) == len(names)
    assert all(option.doc.endswith((".", "`.")) for option in SOURCE_OPTIONS)
