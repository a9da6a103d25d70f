"""Topic patterns in RE2's syntax, matched in time linear in the name.

Python's `re` backtracks: `(a|a)*b` takes for ever on a name of forty a's, and `.*.*.*.*x` does on a long one, so no
list of forbidden shapes makes it safe. As in RE2, a pattern becomes a small automaton that is in all its states at once;
sets of states that were met before are remembered, which makes most steps one look-up. What an automaton cannot do
(references, look-around) and what no topic name needs (word boundaries, Unicode classes, octal) is refused.

A topic name is ASCII, so a set of characters is an integer with a bit for each of the 128.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from goqueue.core.group.consumer_pattern_syntax import Anchor, Chars, Choice, Node, Repeat, Row, parse
from goqueue.model.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX = 256
INSTRUCTION_COUNT_MAX = 1_000  # counted repetitions are written out
_MEMO_COUNT_MAX = 10_000

_States = frozenset[int]


class TopicPattern:
    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(
                f"a pattern may have at most {PATTERN_LENGTH_MAX} characters; this one has {len(text)}",
                length=len(text),
            )
        self._program = _Program(text)
        self._memo: dict[tuple[_States, str], _States] = {}

    def matches(self, name: str) -> bool:
        """The whole name, as RE2's full match. A name is not empty: its start is not its end."""
        states = self._program.start
        for character in name:
            step = self._memo.get((states, character))
            if step is None:
                if len(self._memo) >= _MEMO_COUNT_MAX:
                    self._memo.clear()
                step = self._memo[states, character] = self._program.step(states, character)
            if not step:
                return False
            states = step
        return self._program.accepts(states)


@dataclass(frozen=True, slots=True)
class _Fork:
    """Goes on at all of these."""

    targets: tuple[int, ...]


_Instruction = Chars | Anchor | _Fork


class _Program:
    """Instructions in a row. The number after the last one is the accepting state."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._instructions: list[_Instruction] = []
        self._emit(parse(text))
        self._end = len(self._instructions)
        self._end_anchors = frozenset(
            at for at, one in enumerate(self._instructions) if isinstance(one, Anchor) and not one.is_start
        )
        self.start = self._reach([0], at_start=True)

    def step(self, states: _States, character: str) -> _States:
        code = ord(character)
        following = []
        for at in states:
            one = self._instructions[at] if at < self._end else None
            if isinstance(one, Chars) and one.mask >> code & 1:
                following.append(at + 1)
        return self._reach(following)

    def accepts(self, states: _States) -> bool:
        if self._end in states or states.isdisjoint(self._end_anchors):
            return self._end in states
        return self._end in self._reach(list(states), at_end=True)

    def _reach(self, states: list[int], *, at_start: bool = False, at_end: bool = False) -> _States:
        """These states and all that follow from them without reading a character."""
        seen: set[int] = set()
        while states:
            at = states.pop()
            if at in seen:
                continue
            seen.add(at)
            one = self._instructions[at] if at < self._end else None
            if isinstance(one, _Fork):
                states.extend(one.targets)
            elif isinstance(one, Anchor) and (at_start if one.is_start else at_end):
                states.append(at + 1)
        return frozenset(seen)

    def _emit(self, node: Node) -> None:
        match node:
            case Chars() | Anchor():
                self._append(node)
            case Row():
                for item in node.items:
                    self._emit(item)
            case Choice():
                self._emit_choice(node)
            case Repeat():
                self._emit_repeat(node)
            case _:
                assert_never(node)

    def _append(self, one: _Instruction) -> int:
        if len(self._instructions) >= INSTRUCTION_COUNT_MAX:
            raise InvalidRegularExpression(
                f"the pattern {self._text!r} repeats too much: written out it has more than "
                f"{INSTRUCTION_COUNT_MAX} steps",
                pattern=self._text,
            )
        self._instructions.append(one)
        return len(self._instructions) - 1

    def _emit_choice(self, node: Choice) -> None:
        fork = self._append(_Fork(()))
        starts, exits = [], []
        for option in node.options:
            starts.append(len(self._instructions))
            self._emit(option)
            exits.append(self._append(_Fork(())))
        self._instructions[fork] = _Fork(tuple(starts))
        self._leave_from(exits)

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.count_min):
            before = len(self._instructions)
            self._emit(node.item)
            if len(self._instructions) == before:
                return  # nothing, however often
        if node.count_max is None:
            fork = self._append(_Fork(()))
            self._emit(node.item)
            self._append(_Fork((fork,)))
            self._instructions[fork] = _Fork((fork + 1, len(self._instructions)))
            return
        exits = []
        for _ in range(node.count_max - node.count_min):
            exits.append(self._append(_Fork(())))
            self._emit(node.item)
        self._leave_from(exits, or_go_on=True)

    def _leave_from(self, exits: list[int], *, or_go_on: bool = False) -> None:
        """Point the forks at what comes next."""
        end = len(self._instructions)
        for at in exits:
            self._instructions[at] = _Fork((at + 1, end) if or_go_on else (end,))
