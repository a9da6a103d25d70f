"""Topic settings: each reads its own text back, and refuses everything else with what would be right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from goqueue.model.errors import InvalidSetting
from goqueue.model.settings import (
    INT_MAX,
    LONG_MAX,
    NOT_TAKEN,
    RULES,
    SETTING_NAMES,
    SETTINGS,
    CleanupPolicy,
    OneOf,
    Ratio,
    SettingType,
    Switch,
    TopicName,
    TopicSettings,
    Whole,
    as_texts,
    check_settings,
    describe_setting,
    resolve,
    setting_facts,
)


def texts(name: str) -> st.SearchStrategy[str]:
    """Texts that a setting takes, in their canonical form."""
    match RULES[name]:
        case Whole(least, most, or_unlimited):
            numbers = st.integers(least, most).map(str)
            return st.one_of(numbers, st.just("-1")) if or_unlimited else numbers
        case Ratio():
            return st.floats(0, 1).map(str)
        case OneOf(kind):
            return st.sampled_from([member.value for member in kind])
        case TopicName():
            return st.from_regex(r"[a-zA-Z][a-zA-Z0-9._-]{0,20}", fullmatch=True) | st.just("")
        case Switch():
            return st.sampled_from(["false", "true"])


OVERRIDES = st.lists(st.sampled_from(SETTING_NAMES), unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: texts(name) for name in names})
)
EACH_SETTING = pytest.mark.parametrize("name", SETTING_NAMES)


def test_every_field_has_a_rule_and_every_rule_a_field() -> None:
    assert [name.replace(".", "_") for name in SETTING_NAMES] == [
        field.name for field in structs.fields(TopicSettings)
    ]


def test_every_default_is_a_value_that_could_be_set() -> None:
    defaults = TopicSettings()
    assert check_settings(as_texts(defaults)) == as_texts(defaults)
    assert resolve(as_texts(defaults), defaults) == defaults


@given(OVERRIDES)
@settings(max_examples=150, deadline=None)
def test_texts_of_settings_are_read_back_as_the_same_settings(overrides: dict[str, str]) -> None:
    assert check_settings(overrides) == overrides
    resolved = resolve(overrides, TopicSettings())
    assert as_texts(resolved) == {**as_texts(TopicSettings()), **overrides}
    assert resolve(as_texts(resolved), TopicSettings(segment_bytes=9_999)) == resolved


def test_overrides_are_laid_over_the_defaults_and_leave_them_alone() -> None:
    defaults = TopicSettings(segment_ms=5, retention_ms=6)
    resolved = resolve({"retention.ms": "-1", "cleanup.policy": "compact,delete"}, defaults)
    assert resolved == TopicSettings(
        segment_ms=5, retention_ms=-1, cleanup_policy=CleanupPolicy.COMPACT_DELETE
    )
    assert defaults == TopicSettings(segment_ms=5, retention_ms=6)
    assert resolve({}, defaults) == defaults


@pytest.mark.parametrize(
    ("name", "text", "canonical"),
    [
        ("retention.ms", " 060 ", "60"),
        ("retention.ms", "+60", "60"),
        ("retention.ms", "1_000", "1000"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("cleanup.policy", "delete,compact", "compact,delete"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("cleanup.policy", " delete", "delete"),
        ("unclean.leader.election.enable", " False ", "false"),
    ],
)
def test_accepted_text_is_kept_in_its_canonical_form(name: str, text: str, canonical: str) -> None:
    assert check_settings({name: text}) == {name: canonical}


@EACH_SETTING
@pytest.mark.parametrize(
    "text", ["", "x", "1.5.1", "nan", "inf", "-2", "None", "9" * 20, "9" * 5_000, "\ud800"]
)
def test_bad_value_is_refused_with_the_setting_the_value_and_what_it_must_be(name: str, text: str) -> None:
    if isinstance(RULES[name], TopicName):
        text = f"/{text}"  # a name is nearly anything else
    with pytest.raises(InvalidSetting) as caught:
        check_settings({name: text})
    assert caught.value.sentence == f"setting {name!r} is {text!r}; it must be {describe_setting(name)}"
    assert caught.value.details == {"setting": name, "value": text}
    with pytest.raises(InvalidSetting):
        resolve({name: text}, TopicSettings())


@EACH_SETTING
def test_bounds_of_a_number_are_accepted_and_what_lies_just_outside_is_not(name: str) -> None:
    rule = RULES[name]
    if not isinstance(rule, Whole):
        return
    for number in (rule.least, rule.most):
        assert check_settings({name: str(number)}) == {name: str(number)}
    outside = {rule.least - 1, rule.most + 1, -1} - ({-1} if rule.or_unlimited else set())
    for number in outside:
        with pytest.raises(InvalidSetting, match=f"from {rule.least} to {rule.most}"):
            check_settings({name: str(number)})
    if rule.or_unlimited:
        assert check_settings({name: "-1"}) == {name: "-1"}
        assert describe_setting(name).endswith("or -1 for no limit")


@EACH_SETTING
def test_description_of_a_choice_names_every_member(name: str) -> None:
    rule = RULES[name]
    if isinstance(rule, OneOf):
        for member in rule.kind:
            assert member.value in describe_setting(name)
            assert check_settings({name: member.value}) == {name: member.value}


@pytest.mark.parametrize("text", ["delete,delete", "delete,", ",", "compact;delete", "keep", "delete,keep"])
def test_cleanup_policy_is_a_list_of_known_members_each_once(text: str) -> None:
    with pytest.raises(InvalidSetting, match="one of delete, compact, compact,delete"):
        check_settings({"cleanup.policy": text})


def test_a_switch_is_true_or_false() -> None:
    assert check_settings({"unclean.leader.election.enable": "TRUE"}) == {
        "unclean.leader.election.enable": "true"
    }
    for text in ("1", "no", ""):
        with pytest.raises(InvalidSetting, match="must be true or false"):
            check_settings({"unclean.leader.election.enable": text})


@EACH_SETTING
def test_facts_of_a_setting_are_those_of_its_rule_and_its_default(name: str) -> None:
    facts = setting_facts(name)
    assert check_settings({name: facts.default}) == {name: facts.default}
    assert facts.default == as_texts(TopicSettings())[name]
    assert facts.documentation.endswith(".")
    match RULES[name]:
        case Whole(_, most):
            assert facts.type is (SettingType.INT if most <= INT_MAX else SettingType.LONG)
        case Ratio():
            assert facts.type is SettingType.DOUBLE
        case OneOf(kind):
            assert facts.type is (SettingType.LIST if kind is CleanupPolicy else SettingType.STRING)
        case TopicName():
            assert facts.type is SettingType.STRING
        case Switch():
            assert facts.type is SettingType.BOOLEAN


def test_defaults_that_clients_rely_on_are_those_of_kafka() -> None:
    assert setting_facts("message.timestamp.before.max.ms").default == str(LONG_MAX)
    assert setting_facts("message.timestamp.after.max.ms").default == "3600000"
    assert setting_facts("min.insync.replicas").default == "1"
    assert setting_facts("unclean.leader.election.enable").default == "false"


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_a_setting_of_kafkas_that_would_change_nothing_is_refused_with_the_reason(name: str) -> None:
    assert name not in SETTINGS
    for attempt in (lambda: check_settings({name: "1"}), lambda: setting_facts(name)):
        with pytest.raises(InvalidSetting) as caught:
            attempt()
        assert NOT_TAKEN[name] in caught.value.sentence
        assert caught.value.details == {"setting": name}


@pytest.mark.parametrize("name", ["", "retention_ms", "Retention.ms", "nope"])
def test_unknown_setting_is_refused_with_those_that_exist(name: str) -> None:
    for attempt in (lambda: check_settings({name: "1"}), lambda: resolve({name: "1"}, TopicSettings())):
        with pytest.raises(InvalidSetting) as caught:
            attempt()
        assert caught.value.details == {"setting": name}
        assert all(known in caught.value.sentence for known in SETTING_NAMES)


def test_one_bad_setting_refuses_all_of_them() -> None:
    with pytest.raises(InvalidSetting, match=r"'segment\.ms' is '0'"):
        check_settings({"retention.ms": "60", "segment.ms": "0"})


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True)],
)
def test_cleanup_policy_says_what_it_does(policy: str, compacts: bool, deletes: bool) -> None:
    assert (CleanupPolicy(policy).compacts, CleanupPolicy(policy).deletes) == (compacts, deletes)
