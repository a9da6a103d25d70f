"""What a group as a whole reads, counted, so that a heartbeat need not ask every member."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from goqueue.core.group.assignors import DEFAULT_ASSIGNOR, MemberSubscription
from goqueue.core.group.consumer_events import ConsumerHeartbeat, MemberSubscribed
from goqueue.core.group.consumer_pattern import TopicPattern
from goqueue.core.group.topics_view import Topics
from goqueue.model.names import is_internal


class TopicMatches:
    """The topics that each pattern matches. When topics come and go, only the new ones are matched again."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: list[str] = []
        self._patterns: dict[str, TopicPattern] = {}
        self._matched: dict[str, list[str]] = {}

    def pattern(self, regex: str) -> TopicPattern:
        """Raises InvalidRegularExpression."""
        pattern = self._patterns.get(regex)
        return pattern if pattern is not None else TopicPattern(regex)

    def matched(self, regex: str) -> list[str]:
        """Sorted. Internal topics are nobody's to read by pattern."""
        self._follow_topics()
        found = self._matched.get(regex)
        if found is None:
            pattern = self._patterns[regex] = self.pattern(regex)
            found = self._matched[regex] = [
                name for name in self._names if not is_internal(name) and pattern.matches(name)
            ]
        return found

    def forget(self, regex: str) -> None:
        self._patterns.pop(regex, None)
        self._matched.pop(regex, None)

    def _follow_topics(self) -> None:
        names = self._topics.names()
        if names == self._names:
            return
        before, after = set(self._names), set(names)
        added = [name for name in names if name not in before and not is_internal(name)]
        for regex, found in self._matched.items():
            matches = self._patterns[regex].matches
            kept = [name for name in found if name in after]
            self._matched[regex] = sorted(kept + [name for name in added if matches(name)])
        self._names = list(names)


class Subscriptions:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._matches = TopicMatches(topics)
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._votes: Counter[str] = Counter()

    def add(self, member: MemberSubscribed) -> None:
        self._names.update(member.topics)
        if member.regex is not None:
            self._regexes[member.regex] += 1
        if member.assignor is not None:
            self._votes[member.assignor] += 1

    def remove(self, member: MemberSubscribed) -> None:
        for name in member.topics:
            _take_one(self._names, name)
        if member.regex is not None:
            _take_one(self._regexes, member.regex)
            if member.regex not in self._regexes:
                self._matches.forget(member.regex)
        if member.assignor is not None:
            _take_one(self._votes, member.assignor)

    def replaced(self, before: MemberSubscribed | None, after: MemberSubscribed) -> Subscriptions:
        """What it would be; this one stays as it is."""
        other = Subscriptions(self._topics)
        other._matches = self._matches
        other._names = self._names.copy()
        other._regexes = self._regexes.copy()
        other._votes = self._votes.copy()
        other.add(after)
        if before is not None:
            other._names.subtract(before.topics)
            if before.regex is not None:
                other._regexes[before.regex] -= 1
            if before.assignor is not None:
                other._votes[before.assignor] -= 1
        return other

    def check_regex(self, regex: str) -> None:
        self._matches.pattern(regex)

    def includes(self, topic: str) -> bool:
        if self._names[topic] > 0:
            return True
        if is_internal(topic):
            return False
        return any(self._matches.pattern(regex).matches(topic) for regex in self._regexes)

    def topics(self) -> dict[str, int]:
        """Those that exist, with their partition counts; sorted."""
        names = {name for name, count in self._names.items() if count > 0}
        for regex, count in self._regexes.items():
            if count > 0:
                names.update(self._matches.matched(regex))
        found = ((name, self._topics.partition_count(name)) for name in sorted(names))
        return {name: count for name, count in found if count is not None}

    def of_each(self, members: Iterable[MemberSubscribed]) -> list[MemberSubscription]:
        """The topics that each reads, whether or not they exist. Most members read the same, often by the thousand."""
        resolved: dict[tuple[tuple[str, ...], str | None], tuple[str, ...]] = {}
        found = []
        for member in members:
            said = member.topics, member.regex
            if said not in resolved:
                matched = self._matches.matched(member.regex) if member.regex is not None else []
                resolved[said] = tuple(sorted({*member.topics, *matched}))
            found.append(MemberSubscription(member.member_id, resolved[said], member.instance_id))
        return found

    def assignor(self) -> str:
        """The one most members ask for; the first by name of those with as many votes."""
        voted = [(-count, name) for name, count in self._votes.items() if count > 0]
        return min(voted)[1] if voted else DEFAULT_ASSIGNOR


def subscribed(
    group_id: str, member_id: str, before: MemberSubscribed | None, command: ConsumerHeartbeat
) -> MemberSubscribed:
    """What the member was, with what the heartbeat says anew."""
    if before is None:
        before = MemberSubscribed(group_id, member_id, None, None, "", "", 0, (), None, None)
    topics, timeout_ms = command.subscribed_topics, command.rebalance_timeout_ms
    return MemberSubscribed(
        group_id=group_id,
        member_id=member_id,
        instance_id=_or(command.instance_id, before.instance_id),
        rack_id=_or(command.rack_id, before.rack_id),
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=before.topics if topics is None else tuple(sorted(set(topics))),
        regex=_or(command.subscribed_regex, before.regex) or None,
        assignor=_or(command.assignor, before.assignor),
        session_timeout_ms=command.session_timeout_ms or before.session_timeout_ms,
    )


def _or(said: str | None, before: str | None) -> str | None:
    return before if said is None else said


def digest(topics: dict[str, int], closed: Mapping[str, frozenset[int]]) -> str:
    """Equal only for equal topics of which the same is not given; much shorter than they are where a pattern matches
    thousands."""
    said: list[object] = [*topics.items()]
    said += [(topic, sorted(indexes)) for topic, indexes in closed.items()]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:32]


def _take_one(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
