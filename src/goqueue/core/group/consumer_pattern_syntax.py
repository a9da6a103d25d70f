"""RE2's syntax, read into a tree: what `consumer_pattern` makes its automaton of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.model.errors import InvalidRegularExpression

DEPTH_MAX = 50
REPEAT_COUNT_MAX = 1_000  # as in RE2

ALL = (1 << 128) - 1


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    count_min: int
    count_max: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    is_start: bool  # else the end


Node = Chars | Row | Choice | Repeat | Anchor


def parse(text: str) -> Node:
    return _Parser(text).parse()


def _mask(characters: str) -> int:
    mask = 0
    for character in characters:
        mask |= _bit(character)
    return mask


def _bit(character: str) -> int:
    """No bit for what cannot be in a topic's name."""
    return 1 << ord(character) if ord(character) < 128 else 0


def _span(first: str, last: str) -> int:
    return sum(1 << code for code in range(ord(first), min(ord(last), 127) + 1))


_DIGIT = _span("0", "9")
_LOWER = _span("a", "z")
_UPPER = _span("A", "Z")
_ALPHA = _LOWER | _UPPER
_WORD = _ALPHA | _DIGIT | _bit("_")
_SPACE = _mask("\t\n\f\r ")
_PERL: Mapping[str, int] = {
    "d": _DIGIT,
    "D": ALL & ~_DIGIT,
    "w": _WORD,
    "W": ALL & ~_WORD,
    "s": _SPACE,
    "S": ALL & ~_SPACE,
}
_POSIX: Mapping[str, int] = {
    "alnum": _ALPHA | _DIGIT,
    "alpha": _ALPHA,
    "ascii": ALL,
    "blank": _mask("\t "),
    "cntrl": _span("\0", "\x1f") | _bit("\x7f"),
    "digit": _DIGIT,
    "graph": _span("!", "~"),
    "lower": _LOWER,
    "print": _span(" ", "~"),
    "punct": _span("!", "/") | _span(":", "@") | _span("[", "`") | _span("{", "~"),
    "space": _SPACE | _bit("\v"),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _mask("0123456789abcdefABCDEF"),
}
_CONTROL: Mapping[str, str] = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._folds_case = False

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._refused("an unexpected ')'")
        return node

    def _refused(self, what: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(
            f"the pattern {self._text!r} has {what} at character {self._at}; patterns follow RE2's syntax",
            pattern=self._text,
            position=self._at,
        )

    def _peek(self) -> str:
        """Empty at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._refused("an unexpected end")
        self._at += 1
        return character

    def _accept(self, literal: str) -> bool:
        if not self._text.startswith(literal, self._at):
            return False
        self._at += len(literal)
        return True

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._refused(f"more than {DEPTH_MAX} groups in one another")
        options = [self._row()]
        while self._accept("|"):
            options.append(self._row())
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _row(self) -> Node:
        items: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept("\\Q"):
                items += self._quoted()
            else:
                items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _quoted(self) -> list[Node]:
        """Everything up to `\\E` as it stands; a repetition after it counts for the last character."""
        end = self._text.find("\\E", self._at)
        literal = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        items: list[Node] = [self._literal(character) for character in literal]
        if items:
            items[-1] = self._repeated(items[-1])
        return items

    def _literal(self, character: str) -> Chars:
        return Chars(self._folded(_bit(character)))

    def _folded(self, mask: int) -> int:
        if not self._folds_case:
            return mask
        return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32

    def _atom(self) -> Node:
        character = self._take()
        match character:
            case ".":
                return Chars(ALL & ~_bit("\n"))
            case "^":
                return Anchor(is_start=True)
            case "$":
                return Anchor(is_start=False)
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._at -= 1
                raise self._refused(f"{character!r} with nothing to repeat")
            case _:
                return self._literal(character)

    def _group(self) -> Node:
        folded = self._folds_case
        if self._accept("?"):
            if self._accept("P<") or (self._accept("<") and self._peek() not in ("=", "!")):
                self._name()
            elif not self._flags():
                return Row(())  # the flags hold to the end of the group around
        node = self._choice()
        if not self._accept(")"):
            raise self._refused("a group without an end")
        self._folds_case = folded
        return node

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not name.isascii() or not name.replace("_", "a").isalnum():
            raise self._refused("a group without a proper name")
        self._at = end + 1

    def _flags(self) -> bool:
        """Of `(?i-s:`, whether a group follows them. Only `i` makes a difference to a name, which is one line."""
        is_on = True
        while True:
            match self._take():
                case "i":
                    self._folds_case = is_on
                case "m" | "s" | "U":
                    pass
                case "-" if is_on:
                    is_on = False
                case ":":
                    return True
                case ")":
                    return False
                case _:
                    self._at -= 1
                    raise self._refused("a group of a kind that is not supported")

    def _repeated(self, item: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return item
        self._accept("?")  # the shortest match or the longest: a full match is the same
        if self._counts() is not None:
            raise self._refused("a repetition of a repetition")
        return Repeat(item, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        if self._accept("*"):
            return 0, None
        if self._accept("+"):
            return 1, None
        if self._accept("?"):
            return 0, 1
        return self._braces() if self._peek() == "{" else None

    def _braces(self) -> tuple[int, int | None] | None:
        """As in RE2, a brace that is not a count is a brace."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        count_min = int(low)
        count_max = count_min if not comma else int(high) if high else None
        if max(count_min, count_max or 0) > REPEAT_COUNT_MAX:
            raise self._refused(f"a repetition of more than {REPEAT_COUNT_MAX}")
        if count_max is not None and count_max < count_min:
            raise self._refused("a repetition whose end is before its start")
        self._at = end + 1
        return count_min, count_max

    def _escape(self) -> Node:
        if self._accept("A"):
            return Anchor(is_start=True)
        if self._accept("z"):
            return Anchor(is_start=False)
        if self._peek() in _PERL:
            return Chars(_PERL[self._take()])
        return self._literal(self._escaped())

    def _escaped(self) -> str:
        """The one character that the escape stands for."""
        character = self._take()
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            return self._hexadecimal()
        if character.isascii() and not character.isalnum():
            return character
        self._at -= 1
        raise self._refused(f"the escape '\\{character}', which is not supported,")

    def _hexadecimal(self) -> str:
        if self._accept("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            self._at += len(digits) + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
        if not digits or len(digits) > 6 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self._refused("a hexadecimal escape that is not one")
        code = int(digits, 16)
        return chr(code) if code < 128 else "\N{REPLACEMENT CHARACTER}"

    def _class(self) -> int:
        is_negated = self._accept("^")
        mask = 0
        is_first = True
        while is_first or self._peek() != "]":
            mask |= self._class_item()
            is_first = False
        self._at += 1
        mask = self._folded(mask)
        return ALL & ~mask if is_negated else mask

    def _class_item(self) -> int:
        if self._accept("[:"):
            return self._posix()
        if self._text.startswith("\\", self._at) and self._text[self._at + 1 : self._at + 2] in _PERL:
            self._at += 1
            return _PERL[self._take()]
        first = self._class_character()
        if self._peek() != "-" or self._text.startswith("-]", self._at):
            return _bit(first)
        self._at += 1
        last = self._class_character()
        if last < first:
            raise self._refused("a range whose end is before its start")
        return _span(first, last)

    def _class_character(self) -> str:
        return self._escaped() if self._accept("\\") else self._take()

    def _posix(self) -> int:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : max(end, self._at)]
        mask = _POSIX.get(name.removeprefix("^"))
        if mask is None:
            raise self._refused("a class of characters that is not supported")
        self._at = end + 2
        return ALL & ~mask if name.startswith("^") else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
