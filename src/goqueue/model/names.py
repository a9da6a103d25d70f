"""What a topic, or a recurring schedule, may be called. The rule is Kafka's, so that every client agrees, and it keeps a name from
ever leaving its directory: no separators, no dots-only names, no control characters."""

from __future__ import annotations

import re

from goqueue.model.errors import InvalidName

NAME_LENGTH_MAX = 249
INTERNAL_PREFIX = "__"
METADATA_TOPIC = "__cluster_metadata"
COMPANION_PREFIXES = ("__ledger.", "__schedule.")  # logs beside a user's topic

_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


def check_topic_name(name: str) -> str:
    """Return the name, or say what is wrong with it."""
    return _check(name, "topic")


def check_schedule_name(name: str) -> str:
    """Of a recurring schedule: the same rule."""
    return _check(name, "schedule")


def check_new_topic_name(name: str) -> str:
    """As `check_topic_name`, and refuse the names that the broker keeps for itself."""
    check_topic_name(name)
    if is_internal(name):
        raise InvalidName(
            f"topic names that start with {INTERNAL_PREFIX!r} are internal; choose another", name=name
        )
    return name


def companions_of(topic: str) -> list[str]:
    """The names of the logs beside a topic, whether they exist or not."""
    names = [f"{prefix}{topic}" for prefix in COMPANION_PREFIXES]
    return [name for name in names if len(name) <= NAME_LENGTH_MAX]  # there is none of a longer name


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)


def _check(name: str, what: str) -> str:
    if not name:
        raise InvalidName(f"a {what} name must not be empty", name=name)
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"a {what} name may have at most {NAME_LENGTH_MAX} characters; this one has {len(name)}",
            name=name[:NAME_LENGTH_MAX],
            length=len(name),
        )
    if name in (".", ".."):
        raise InvalidName(f"{name!r} is not a {what} name", name=name)
    if not _LEGAL.fullmatch(name):
        raise InvalidName(f"{what} name {name!r} may hold only letters, digits, '.', '_' and '-'", name=name)
    return name
