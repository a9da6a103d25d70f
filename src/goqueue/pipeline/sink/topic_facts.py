"""What a task knows of the topics it writes to, asked for once.

Topics and partitions together are *places*, numbered as they are met: rows are sorted by a small number, not by names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from goqueue.model.errors import GoQueueError, InvalidName
from goqueue.model.names import check_new_topic_name
from goqueue.model.settings import SETTING_NAMES, TopicSettings, resolve
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.ports import TopicSource
from goqueue.pipeline.span import Place

TOPIC_COUNT_MAX: Final = 10_000  # names in one task, those that do not exist included


class TopicFacts(NamedTuple):
    name: str
    partition_count: int
    first_place: int  # its partitions have this number and those that follow
    settings: TopicSettings


@dataclass(slots=True)
class TopicFinder:
    """A name that is not known makes it look at the cluster again, once for all such names of a window."""

    source: TopicSource
    makes_topics: bool = False
    places: list[Place] = field(default_factory=list)
    _found: dict[str, TopicFacts | None] = field(default_factory=dict)

    def find_all(self, names: list[str]) -> list[TopicFacts | None]:
        new = [name for name in names if name not in self._found]
        if new:
            self._look(new)
        return [self._found[name] for name in names]

    def find_or_make(self, name: str) -> TopicFacts:
        """A topic of the sink's own, which is not a row's fault if it does not exist."""
        if self._found.get(name) is None:
            if name not in self.source.topics():
                self.source.create_topic(name)
            self._found.pop(name, None)
            self._look([name])
        found = self._found[name]
        if found is None:
            raise PipelineError(f"topic {name!r} does not exist and could not be created")
        return found

    def of_place(self, place: int) -> TopicFacts:
        facts = self._found[self.places[place].topic]
        if facts is None:
            raise KeyError(place)
        return facts

    def _look(self, new: list[str]) -> None:
        if len(self._found) + len(new) > TOPIC_COUNT_MAX:
            raise PipelineError(
                f"one task's rows name more than {TOPIC_COUNT_MAX} topics, of which {new[0]!r} is the next; "
                "is the column 'topic' the right one?"
            )
        counts = self.source.topics()
        if self.makes_topics:
            missing = [name for name in new if name not in counts and _is_legal(name)]
            for name in missing:
                self.source.create_topic(name)
            counts = self.source.topics() if missing else counts
        for name in new:
            count = counts.get(name)
            self._found[name] = None if count is None else self._facts(name, count)

    def _facts(self, name: str, partition_count: int) -> TopicFacts:
        texts = {key: text for key, text in self.source.topic_settings(name).items() if key in SETTING_NAMES}
        try:
            settings = resolve(texts, TopicSettings())
        except GoQueueError as error:
            raise PipelineError(
                f"the broker described topic {name!r} in a way that is not known: {error}"
            ) from error
        facts = TopicFacts(name, partition_count, len(self.places), settings)
        self.places += [Place(name, index) for index in range(partition_count)]
        return facts


def _is_legal(name: str) -> bool:
    try:
        check_new_topic_name(name)
    except InvalidName:
        return False
    return True
