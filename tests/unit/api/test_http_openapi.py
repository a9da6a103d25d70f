"""The OpenAPI document says what the table says, and its schemas what the model enforces."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.asgi import Client, Json
from tests.support.rest_api import with_api

from goqueue.api.http.openapi import build_document
from goqueue.api.http.routes import ROUTES
from goqueue.api.http.setting_schema import SETTINGS_SCHEMA, number_pattern
from goqueue.model.codes import WIRE, Code
from goqueue.model.errors import InvalidName, InvalidSetting
from goqueue.model.limits import Limits
from goqueue.model.names import check_new_topic_name, check_topic_name
from goqueue.model.settings import RULES, SETTING_NAMES, OneOf, Ratio, Switch, Whole, check_settings
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node


def document(config: NodeConfig | None = None) -> Json:
    return json.loads(build_document(ROUTES, config or NodeConfig()))


DOCUMENT = document()


def references(value: Json) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(inner) for inner in value.values()))
    if isinstance(value, list):
        return set().union(*(references(inner) for inner in value))
    return set()


def test_the_document_is_served() -> None:
    async def main(client: Client, node: Node) -> None:
        response = await client.get("/openapi.json")
        assert response.headers["content-type"] == "application/json"
        assert response.json() == document()

    with_api(main)


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    operations = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    assert operations == {(route.method, route.path) for route in ROUTES}


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for item in document()["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids)) == len(ROUTES)


def test_every_status_of_every_error_is_documented() -> None:
    paths = document()["paths"]
    for route in ROUTES:
        responses = paths[route.path][route.method.lower()]["responses"]
        statuses = {
            WIRE[code].http for code in (*route.errors, Code.INVALID_REQUEST, Code.INTERNAL, Code.NOT_READY)
        }
        assert {int(status) for status in responses} == statuses | {route.status, *route.more_answers}


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    whole = document()
    assert references(whole) == {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}


def test_path_parameters_are_those_of_the_template() -> None:
    for path, item in document()["paths"].items():
        for operation in item.values():
            names = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert names == re.findall(r"{(\w+)}", path)


def test_limits_are_those_of_the_node() -> None:
    limits = Limits(partitions_per_topic_max=7, messages_per_request_max=9, wait_ms_max=5_000)
    whole = document(NodeConfig(limits=limits, default_partition_count=2))
    schemas = whole["components"]["schemas"]
    assert schemas["NewTopic"]["properties"]["num_partitions"]["maximum"] == 7
    assert schemas["NewTopic"]["properties"]["num_partitions"]["default"] == 2
    assert schemas["Publish"]["properties"]["messages"]["maxItems"] == 9
    read = whole["paths"]["/topics/{topic}/partitions/{partition}/messages"]["get"]
    (wait,) = (one["schema"] for one in read["parameters"] if one["name"] == "wait")
    assert re.fullmatch(wait["pattern"], "5s")
    assert re.fullmatch(wait["pattern"], "5000")
    assert not re.fullmatch(wait["pattern"], "6s")
    assert not re.fullmatch(wait["pattern"], "5001ms")


def test_the_document_says_that_publishing_waits_for_all() -> None:
    publish = document()["paths"]["/topics/{topic}/messages"]["post"]
    assert "`acks` is `all` unless" in publish["description"]
    assert document()["components"]["schemas"]["Publish"]["properties"]["acks"]["default"] == "all"


@given(
    bounds=st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)).map(sorted),
    number=st.integers(0, 10**12),
)
def test_a_number_pattern_matches_exactly_its_range(bounds: list[int], number: int) -> None:
    least, most = bounds
    pattern = re.compile(number_pattern(least, most))
    for tried in (number, least, most, max(0, least - 1), most + 1):
        assert bool(pattern.fullmatch(str(tried))) is (least <= tried <= most)


@given(most=st.integers(0, 3_000))
def test_a_number_pattern_matches_no_other_spelling(most: int) -> None:
    pattern = re.compile(number_pattern(0, most))
    assert [number for number in range(3_100) if pattern.fullmatch(str(number))] == list(range(most + 1))
    assert not any(pattern.fullmatch(text) for text in ("", "00", "01", "+1", "-1", " 1", "1.0"))


def test_every_setting_has_a_schema() -> None:
    assert tuple(SETTINGS_SCHEMA["properties"]) == SETTING_NAMES


def accepts(name: str, text: str) -> bool:
    try:
        check_settings({name: text})
    except InvalidSetting:
        return False
    return True


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_a_settings_schema_is_what_the_model_enforces(name: str) -> None:
    match RULES[name]:
        case Whole(least, most, or_unlimited):
            assert [accepts(name, str(number)) for number in (least, most)] == [True, True]
            assert not accepts(name, str(most + 1))
            assert accepts(name, str(least - 1)) is (or_unlimited and least == 0)
            assert accepts(name, "-1") is or_unlimited
        case Ratio():
            assert [accepts(name, text) for text in ("0", "0.5", "1", "1.0")] == [True] * 4
            assert not accepts(name, "1.1")
            assert not accepts(name, "-0.1")
        case OneOf(kind):
            assert all(accepts(name, member.value) for member in kind)
            assert not accepts(name, "something else")
        case Switch():
            assert [accepts(name, text) for text in ("false", "true")] == [True] * 2
            assert not accepts(name, "yes")
    assert isinstance(SETTINGS_SCHEMA["properties"], dict)
    assert name in SETTINGS_SCHEMA["properties"]


@given(
    name=st.one_of(
        st.text(max_size=5), st.text("._-aZ9~/ ", max_size=6), st.integers(240, 260).map("x".__mul__)
    )
)
def test_the_pattern_of_a_name_is_the_name_check(name: str) -> None:
    whole = DOCUMENT
    (topic,) = whole["paths"]["/topics/{topic}/partitions"]["get"]["parameters"]
    new = whole["components"]["schemas"]["NewTopic"]["properties"]["name"]
    for schema, check in ((topic["schema"], check_topic_name), (new, check_new_topic_name)):
        fits = schema["minLength"] <= len(name) <= schema["maxLength"]
        # JSON Schema's `$` is the very end, Python's may stand before a final newline.
        is_documented = fits and re.search(schema["pattern"].replace("$", r"\Z"), name) is not None
        try:
            check(name)
            is_accepted = True
        except InvalidName:
            is_accepted = False
        assert is_documented is is_accepted
