"""`goqueue produce`: messages from arguments, stdin or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from goqueue.cli.lines import LineTooLong, line_groups
from goqueue.cli.options import Failure, OutputOption, UrlOption, parse_pairs
from goqueue.cli.output import Output, show
from goqueue.cli.progress import progress
from goqueue.client.rest import ApiError, NewMessage, Published, RestClient, Unreachable
from goqueue.model.acks import Acks

_REQUEST_BYTES_MAX = 4 * 1024 * 1024  # of keys and values; far below what a broker takes in one request
_STDIN = 0


class Placed(Struct):
    """What one partition got."""

    partition: int
    count: int
    offset_first: int | None
    offset_last: int | None


class Tally:
    """What became of the messages so far."""

    def __init__(self) -> None:
        self.stored_count = 0
        self.refused_count = 0
        self.first_refusal = ""
        self._placed: dict[int, Placed] = {}

    def add(self, results: Iterable[Published]) -> None:
        for result in results:
            if result.error is not None:
                self.refused_count += 1
                self.first_refusal = self.first_refusal or f"{result.error} ({result.code})"
                continue
            self.stored_count += 1
            if result.partition is not None:
                self._place(result.partition, result.offset)

    def placed(self) -> list[Placed]:
        return [self._placed[partition] for partition in sorted(self._placed)]

    def _place(self, partition: int, offset: int | None) -> None:
        known = self._placed.setdefault(partition, Placed(partition, 0, offset, offset))
        known.count += 1
        known.offset_last = offset


def produce(
    topic: Annotated[str, typer.Argument(show_default=False)],
    values: Annotated[list[str] | None, typer.Argument(help="Messages; '-' reads lines from stdin.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="One message per line of stdin.")] = False,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, readable=True, help="One message per line.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    key_separator: Annotated[str | None, typer.Option(help="Each message is KEY, this, VALUE.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every message.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Instead of the one the key hashes to.")
    ] = None,
    acks: Annotated[Acks, typer.Option(help="When a message counts as stored.")] = Acks.ALL,
    batch_size: Annotated[int, typer.Option(min=1, max=10_000, help="Messages per request.")] = 500,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Publish messages to a topic."""
    if key is not None and key_separator is not None:
        raise typer.BadParameter("give --key or --key-separator, not both")
    if key_separator == "":
        raise typer.BadParameter("--key-separator must not be empty")
    if values == ["-"]:
        values, stdin = None, True
    if bool(values) + stdin + (file is not None) != 1:
        raise typer.BadParameter("give messages as arguments, or --stdin, or --file; one of them")
    shape = Shape(key, key_separator, parse_pairs(header or [], "header"), partition)
    tally = Tally()
    with RestClient(url) as client:
        try:
            for group in _groups(values or [], file, batch_size):
                for request in shape.requests(group):
                    tally.add(client.publish(topic, request, acks=acks))
        except (ApiError, LineTooLong, BadLine) as error:
            raise Failure(f"{error}; {tally.stored_count} messages were stored before") from error
        except Unreachable as error:
            unknown = ", and it is not known whether the last batch was" if error.was_sent else ""
            raise Failure(f"{error}; {tally.stored_count} messages were stored before{unknown}") from error
    _report(topic, tally, output)


class BadLine(Exception):
    """A message without its key."""


class Shape(Struct, frozen=True):
    """How text becomes a message."""

    key: str | None
    key_separator: str | None
    headers: dict[str, str]
    partition: int | None

    def requests(self, group: Iterable[bytes]) -> Iterator[list[NewMessage]]:
        """The messages of a group, split where they are too large for one request."""
        request: list[NewMessage] = []
        size = 0
        for text in group:
            if request and size + len(text) > _REQUEST_BYTES_MAX:
                yield request
                request, size = [], 0
            request.append(self._message(text))
            size += len(text)
        if request:
            yield request

    def _message(self, text: bytes) -> NewMessage:
        key = None if self.key is None else os.fsencode(self.key)
        if self.key_separator is not None:
            key, found, text = text.partition(os.fsencode(self.key_separator))
            if not found:
                raise BadLine(f"{key[:40]!r} has no key: {self.key_separator!r} is not in it")
        return NewMessage(text, key, self.headers, self.partition)


def _groups(values: list[str], file: Path | None, batch_size: int) -> Iterator[list[bytes]]:
    if values:
        texts = [os.fsencode(value) for value in values]
        for start in range(0, len(texts), batch_size):
            yield texts[start : start + batch_size]
        return
    if file is None and sys.stdin.isatty():  # a bar would come between a person and their typing
        yield from line_groups(_STDIN, count_max=batch_size)
        return
    total = file.stat().st_size if file is not None else None
    source = open(file, "rb") if file is not None else open(_STDIN, "rb", closefd=False)  # noqa: SIM115
    with closing(source), progress("publishing", total=total) as advance:
        for group in line_groups(source.fileno(), count_max=batch_size):
            yield group
            advance(sum(map(len, group)) + len(group))


def _report(topic: str, tally: Tally, output: Output) -> None:
    placed = tally.placed()
    show(
        {"topic": topic, "stored": tally.stored_count, "refused": tally.refused_count, "partitions": placed},
        output,
        headings=("partition", "stored", "first offset", "last offset"),
        rows=[(one.partition, one.count, one.offset_first, one.offset_last) for one in placed],
    )
    if tally.refused_count:
        count = tally.stored_count + tally.refused_count
        raise Failure(
            f"{tally.refused_count} of {count} messages were refused; the first: {tally.first_refusal}"
        )
