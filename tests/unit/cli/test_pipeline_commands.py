"""What the pipeline's commands refuse before Spark is started, and where they take their topics from."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from typer.testing import CliRunner

from goqueue.cli.commands.pipeline import app, common
from goqueue.cli.options import Failure
from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.replay import to_write_to
from goqueue.pipeline.jobs.selection import Selection
from goqueue.pipeline.origin import Origin


def refusal(*args: str) -> str:
    """The sentence that a command ends with."""
    error = CliRunner().invoke(app, args).exception
    assert isinstance(error, Exception)
    return str(error)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("archive", "t", "--lake", ""), "an archive needs a lake"),
        (("archive", "t", "--lake", "", "--format", "delta"), "lake is ''"),
        (("archive", "t", "--lake", "l", "--format", "delta", "--merge-at", "3"), "are for parquet"),
        (("archive", "t", "--lake", "l", "--master", "here"), "master is 'here'; it can be local"),
        (("replay", "t", "--to", "u", "--sink-option", "topic=v"), "the topic to write is 'u'"),
        (
            ("replay", "t", "--to", "u", "--lake", "l", "--path", "p", "--target", "h:1"),
            "lake is 'l' and path",
        ),
        (("reshard", "t", "--to", "u", "--partitions", "2", "--checkpoint", ""), "its name is empty"),
        (("backup", "create", "--path", "data", "--to", ""), "one is empty"),
        (("backup", "prune", "nowhere", "--keep", "3"), "there is no backup in 'nowhere'"),
        (("restore", "backups", "--to", ""), "it is empty"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(args: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*args)


def test_folder_that_is_named_counts_more_than_a_broker_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[str | None, str | None]] = []

    def origin(bootstrap: str | None, path: str | None, options: list[str] | None = None) -> Origin:
        found.append((bootstrap, path))
        raise Failure("enough")

    monkeypatch.setenv("GOQUEUE_BOOTSTRAP", "host:1")
    monkeypatch.setattr("goqueue.cli.commands.pipeline.usage.origin_of", origin)
    for args in (("--path", "data"), (), ("--path", "data", "--bootstrap", "other:2")):
        refusal("usage", *args)
    assert found == [(None, "data"), ("host:1", None), ("other:2", "data")]
    with pytest.raises(OptionError, match="'other:2' and path is 'data'"):
        common.origin_of("other:2", "data")


def test_options_of_reading_do_not_reach_the_sink_but_those_of_the_connection_do() -> None:
    options = {"minPartitions": "2", "kafka.ssl.ca.location": "ca.pem", "security.protocol": "SSL"}
    origin = Origin("host:1", None, options)
    assert to_write_to(origin) == Origin(
        "host:1", None, {"kafka.ssl.ca.location": "ca.pem", "security.protocol": "SSL"}
    )
    assert to_write_to(origin, "other:2") == Origin("other:2")


def test_records_come_from_a_lake_or_a_folder() -> None:
    with pytest.raises(OptionError, match="lake is 'l' and path is 'p'"):
        Selection(Origin(path="p"), ["t"], lake="l")


def test_what_java_fails_with_is_told_rather_than_which_object_was_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "goqueue.pipeline.session.session.start_session", lambda _: SimpleNamespace(stop=lambda: None)
    )
    monkeypatch.setattr("goqueue.pipeline.session.stages.stage_bar", lambda *_, **__: nullcontext())
    text = (
        "An error occurred while calling o83.collectToPython.\n: org.apache.spark.SparkException: Job aborted: "
        "Python worker failed to connect back.\n\tat org.apache.spark.Some.java"
    )
    said = r"^org\.apache\.spark\.SparkException: Job aborted: Python worker failed"
    with pytest.raises(Failure, match=said), common.spark_session("restore", None, None, None):
        raise Py4JError(text)
