"""`goqueue consume`: print the messages of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from goqueue.cli.message_format import FIELDS, Render, compile_format
from goqueue.cli.options import Failure, UrlOption
from goqueue.cli.reading import Start, Stretch, follow, read_to_end
from goqueue.client.rest import Partition, RestClient
from goqueue.model.duration import parse_instant_ms

_FOLLOWED_COUNT_MAX = 256  # each followed partition costs a thread and a connection


def _instant(text: str | None) -> str | None:
    try:
        return None if text is None else str(parse_instant_ms(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _format(text: str) -> str:
    try:
        compile_format(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return text


InstantOption = typer.Option(
    callback=_instant, metavar="INSTANT", help="RFC 3339, or milliseconds since 1970."
)


def consume(
    topic: Annotated[str, typer.Argument(show_default=False)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first message.")
    ] = False,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this offset of --partition.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.  [default: all]")] = None,
    from_time: Annotated[str | None, InstantOption] = None,
    to_time: Annotated[str | None, InstantOption] = None,
    follow_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with messages as they arrive.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            callback=_format,
            help=f"A template with {{{'}, {'.join(FIELDS)}}}, or json for JSON lines.",
        ),
    ] = "{value}",
    url: UrlOption = "",
) -> None:
    """Print the messages of a topic. Without a start given, only messages to come are printed (--follow)."""
    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-time")
    if offset is not None and partition is None:
        raise typer.BadParameter("--offset needs --partition: every partition counts its own offsets")
    if follow_on and to_time is not None:
        raise typer.BadParameter("--follow has no end and --to-time is one; give one of them")
    has_start = from_beginning or offset is not None or from_time is not None
    if not has_start and not follow_on:
        raise typer.BadParameter(
            "nothing to print: reading starts at the end; add --from-beginning, --offset, --from-time or --follow"
        )
    with RestClient(url) as client:
        chosen = _choose(client, topic, partition)
        starts = [
            _start(one, from_beginning=from_beginning, offset=offset, timestamp=from_time) for one in chosen
        ]
        if follow_on:
            _announce(topic, starts)
            stretches = follow(url, topic, starts)
        else:
            stretches = read_to_end(client, topic, starts, to_timestamp=to_time)
        _print(topic, stretches, compile_format(format_), limit)


def _choose(client: RestClient, topic: str, partition: int | None) -> list[Partition]:
    partitions = client.partitions(topic)
    if partition is None:
        return partitions
    if partition >= len(partitions):
        raise Failure(f"topic {topic!r} has no partition {partition}; it has 0 to {len(partitions) - 1}")
    return [one for one in partitions if one.partition == partition]


def _start(known: Partition, *, from_beginning: bool, offset: int | None, timestamp: str | None) -> Start:
    if timestamp is not None:
        return Start(known.partition, None, timestamp, known.high_watermark)
    if offset is None:
        offset = known.earliest if from_beginning else known.high_watermark
    return Start(known.partition, offset, None, known.high_watermark)


def _announce(topic: str, starts: list[Start]) -> None:
    """Said once the positions are fixed: every message published from here on will be printed."""
    if len(starts) > _FOLLOWED_COUNT_MAX:
        raise Failure(
            f"{topic!r} has {len(starts)} partitions; at most {_FOLLOWED_COUNT_MAX} can be followed, so name one with --partition"
        )
    print(f"following {topic}; Ctrl-C ends", file=sys.stderr, flush=True)


def _print(topic: str, stretches: Iterable[Stretch], render: Render, limit: int | None) -> None:
    """Flushed after every stretch, so that a program that reads our output waits for nothing."""
    out = sys.stdout.buffer
    for stretch in stretches:
        messages = stretch.messages if limit is None else stretch.messages[:limit]
        out.write(b"".join(render(topic, stretch.partition, message) for message in messages))
        out.flush()
        if limit is not None:
            limit -= len(messages)
            if limit == 0:
                return
