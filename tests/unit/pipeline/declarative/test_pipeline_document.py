"""Pipeline files as YAML: every problem at once, each with its line, its path, its value and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.pipeline.declarative.document import FILE_BYTES_MAX, read_text, read_yaml
from goqueue.pipeline.declarative.loading import load, load_all, with_bootstrap
from goqueue.pipeline.declarative.problems import PipelineFileError
from goqueue.pipeline.declarative.spec import DeadLetterSpec, Definition, Trigger, read_trigger, texts
from goqueue.pipeline.errors import PipelineError

EXAMPLES = Path(__file__).parents[4] / "examples" / "pipelines"
SMALL = """
name: small
sources:
  - {name: a, topic: a}
sinks:
  - {name: b, from: a, topic: b, format: columns}
"""


def _read(text: str, **environment: str) -> Definition:
    return read_yaml(Path("p/x.yaml"), text, environment)


def _problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(PipelineFileError) as raised:
        _read(text, **environment)
    return str(raised.value).splitlines()


def test_example_is_read_whole() -> None:
    definition = load(EXAMPLES / "orders.yaml")
    orders, customers = definition.spec.sources
    assert orders.dead_letters == DeadLetterSpec(topic="orders.bad")
    assert (orders.is_stream, customers.is_stream) == (True, False)
    assert definition.checkpoint == EXAMPLES / "data/pipelines/orders"
    assert definition.located("customers.csv") == str(EXAMPLES / "customers.csv")
    assert definition.located("s3a://bucket/x") == "s3a://bucket/x"
    assert str(definition.trigger_of(definition.spec.sinks[0])) == "every 5 seconds"


def test_all_problems_are_told_with_line_path_value_and_what_would_be_right() -> None:
    text = """name: 5
sources:
  - name: a
    topik: a
    stream: perhaps
sinks:
  - name: b
    from: a
    topic: b
    mode: apend
colour: red
"""
    assert _problems(text) == [
        "p/x.yaml:11: colour: there is no field 'colour' here; there are name, broker, checkpoint, settings, trigger, "
        "sources, views, sinks",
        "p/x.yaml:1: name: it is 5; it must be text; write it in quotes",
        "p/x.yaml:4: sources[0].topik: there is no field 'topik' here; did you mean topic or topics?",
        "p/x.yaml:5: sources[0].stream: it is 'perhaps'; it must be bool",
        "p/x.yaml:10: sinks[0].mode: it is 'apend'; it must be append or update or complete",
    ]


def test_missing_fields_are_named() -> None:
    assert _problems("name: x\nsources: [{topic: a}]\n") == [
        "p/x.yaml:2: sources[0]: the field 'name' is missing",
        "p/x.yaml:1: the field 'sinks' is missing",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [unclosed", "it is not YAML"),
        ("", "it is empty"),
        ("# only a comment\n", "it is empty"),
        ("- a\n- b\n", "it must be a mapping of name"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("name: a\nname: b\n", "'name' stands here twice"),
        ("name: !!python/object/apply:os.system [ls]\n", "it must be text"),
        ("sources: 5\nname: x\nsinks: []\n", "sources: it is 5; it must be a list"),
    ],
)
def test_what_is_no_pipeline_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    assert sentence in "\n".join(_problems(text))


def test_python_objects_in_yaml_are_never_made(tmp_path: Path) -> None:
    mark = tmp_path / "made"
    _problems(f"name: !!python/object/apply:pathlib.Path.touch [{mark}]\nsources: []\nsinks: []\n")
    assert not mark.exists()


def test_secrets_of_the_broker_come_from_the_environment() -> None:
    text = SMALL + "broker: {bootstrap: '${HOST}:9092', options: {ssl.key.password: '${SECRET}'}}\n"
    broker = _read(text, HOST="h", SECRET="s").spec.broker
    assert (broker.bootstrap, broker.options) == ("h:9092", {"ssl.key.password": "s"})
    found = _problems(text, HOST="h")
    assert found == ["p/x.yaml:7: broker.options.ssl.key.password: the environment has no variable SECRET"]


def test_file_has_a_limit_and_must_be_there(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(PipelineFileError, match="more than 1048576 bytes"):
        read_text(large)
    with pytest.raises(PipelineFileError, match=r"gone\.yaml: it cannot be read: No such file"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(PipelineFileError, match=r"\.yaml, \.yml or \.sql"):
        load(tmp_path / "x.json")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineFileError, match="not UTF-8"):
        load(tmp_path / "b.yaml")


def test_pipelines_of_one_process_have_folders_of_their_own(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SMALL)
    with pytest.raises(PipelineError, match="the same checkpoint folder"):
        load_all([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    with pytest.raises(PipelineError, match="at most 20"):
        load_all([tmp_path / "a.yaml"] * 21)


def test_problems_of_several_files_are_told_together(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("nmae: x\n")
    with pytest.raises(PipelineError, match=r"(?s)a\.yaml.*did you mean name.*b\.yaml"):
        load_all([tmp_path / "a.yaml", tmp_path / "b.yaml"])


def test_broker_can_be_another_than_the_files() -> None:
    definition = _read(SMALL)
    assert with_bootstrap(definition, "h:1").spec.broker.bootstrap == "h:1"
    assert with_bootstrap(definition, None) is definition


def test_triggers_and_options_are_read_as_people_write_them() -> None:
    assert read_trigger("once") == read_trigger("available_now") == Trigger()
    assert read_trigger("every 1.5 seconds") == Trigger("1.5 seconds")
    with pytest.raises(ValueError, match="every 10 seconds"):
        read_trigger("sometimes")
    assert texts({"a": True, "b": 5, "c": "x"}) == {"a": "true", "b": "5", "c": "x"}
