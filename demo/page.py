"""The report: one HTML file with everything in it, plots and numbers, and the numbers once more as JSON for programs."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from demo import plots
from demo.analysis import PIPELINE, SOURCES
from demo.expected import RETRIES_MAX, WATERMARK_MS
from demo.series import Hop, hops, rates
from demo.steps import Steps
from demo.story import Outcome

_EVENTS: Final = ("publish.received", "consume.acked", "consume.nacked", "consume.rejected", "dlq.routed")
_HOUR_MS: Final = 3_600_000


def write_report(outcome: Outcome, steps: Steps) -> Path:
    """The page's path."""
    folder = outcome.options.report
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "index.html"
    page.write_text(render(outcome, steps), encoding="utf-8")
    return page


def render(outcome: Outcome, steps: Steps) -> str:
    known = hops(outcome.jobs.traces)
    body = [
        _head(outcome, steps),
        _flow(outcome),
        *_plots(outcome, known),
        _checks(outcome),
        _hops(known),
        _audit(outcome),
        _steps(steps),
        _commands(),
    ]
    style = (SOURCES / "page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>GoQueue demo: a shop's day</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n{_data(outcome, known, steps)}\n</body>\n</html>\n"
    )


def _head(outcome: Outcome, steps: Steps) -> str:
    options, found = outcome.options, outcome.found
    wrong = sum(not one.is_right for one in outcome.checks)
    count = len(outcome.checks)
    if wrong:
        verdict = f"<b>{wrong} of {count} numbers are wrong.</b> They are marked in the table of checks."
    else:
        verdict = (
            f"<b>All {count} numbers are right.</b> What came out of the broker and of Spark was compared with what the "
            "generator of the orders says, to the last record and the last cent."
        )
    tiles = [
        (f"{found.orders:,}", "orders in the topic"),
        (f"{found.acked:,}", "handled by workers"),
        (f"{found.nacks:,}", "times given back"),
        (f"{found.dead_letters.total():,}", "dead letters"),
        (f"{found.archived_rows:,}", "rows in the lake"),
        (f"€ {sum(found.revenue_cents.values()) / 100:,.0f}", "revenue in ended windows"),
    ]
    shown = "".join(
        f'<div class="tile"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for value, name in tiles
    )
    return (
        "<h1>A shop's day through GoQueue and Spark</h1>\n"
        f'<p class="lead">{options.orders:,} orders, generated from seed {options.seed} and published in {options.seconds:g} '
        f"seconds; the whole demo took {steps.elapsed_s:.0f} s.</p>\n"
        f'<div class="verdict{" wrong" if wrong else ""}">{verdict}</div>\n<div class="tiles">{shown}</div>'
    )


def _flow(outcome: Outcome) -> str:
    expected = outcome.expected
    parts = [
        (
            "producer",
            f"publishes orders over REST into the topic <code>orders</code>: keyed by customer, with priorities, "
            f"{expected.delayed:,} of them delayed by 2 to 4 seconds",
        ),
        (
            "workers",
            "three of them share the topic as a queue. They acknowledge what works, give back what fails (payments time out now "
            f"and then), and reject what they cannot read. After {RETRIES_MAX} retries an order is a dead letter in <code>orders.dlq</code>",
        ),
        (
            "pipeline",
            "Spark reads the same topic as a stream: parse, enrich with customers and products, sum up by window. Sums go to the "
            "topic <code>revenue</code>, rows to a lake, and what is no order to <code>orders.unreadable</code>; each exactly once",
        ),
        (
            "jobs",
            "<code>archive</code>, <code>audit</code> and <code>traces</code>, in the same Spark session",
        ),
        (
            "poison",
            f"{expected.unparsable:,} values are no JSON, {expected.invalid:,} are JSON but no order, and {expected.exhausted:,} "
            "orders are for a product that is no longer sold: they fail however often they are tried",
        ),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}.</dd>" for name, text in parts)
    return _section("What happened", f'<dl class="flow">{listed}</dl>')


def _plots(outcome: Outcome, known: Sequence[Hop]) -> list[str]:
    found = outcome.found
    measured = rates(outcome.events, _EVENTS)
    hours = WATERMARK_MS // _HOUR_MS
    return [
        _section(
            "Throughput",
            "<p>Orders come as customers send them, with a peak at lunch time. Where the green line lies below the blue one, orders wait; "
            "Spark starts on the same cores meanwhile.</p>" + plots.throughput(measured),
        ),
        _section(
            "Latency of each step",
            "<p>The way of an order, from the traces that producer and workers wrote. Every order carries a <code>traceparent</code>, "
            "which ties its steps together. When there is more to do than the workers can do, orders of high priority go first: those of low priority are the slow ones.</p>"
            + plots.latencies(known),
        ),
        _section(
            "Revenue by window",
            "<p>What the pipeline wrote to the topic <code>revenue</code>; the black marks are the generator's own sums. A window is written "
            f"once, when the watermark has passed it: no order may be more than {hours} hours late. "
            "The first window of the next morning is still open, and therefore not here.</p>"
            + plots.revenue(found.revenue_cents, outcome.expected.revenue_cents),
        ),
        _section(
            "Retries and dead letters",
            "<p>What fails comes again after a pause, first a quarter of a second, then twice as long each time. What is given up on keeps its bytes and "
            "says why; <code>goqueue pipeline redrive</code> sends it back once the reason is gone.</p>"
            + plots.retries(measured, found.dead_letters),
        ),
    ]


def _checks(outcome: Outcome) -> str:
    rows = [
        (
            one.what,
            f"{one.expected:,}",
            f"{one.found:,}",
            one.origin,
            "right" if one.is_right else "WRONG",
        )
        for one in outcome.checks
    ]
    headings = ("number", "generator says", "found", "where it was found", "")
    note = '<p class="note">The generator\'s numbers are computed from the orders alone, before any was published.</p>'
    return _section(
        "The numbers, and where they come from", note + _table(headings, rows, numbers=(1, 2), verdict=4)
    )


def _hops(known: Sequence[Hop]) -> str:
    rows = [
        (
            hop.name,
            f"{hop.count:,}",
            *(_time(value) for value in (hop.p50_ms, hop.p95_ms, hop.p99_ms, hop.max_ms)),
        )
        for hop in known
    ]
    note = '<p class="note">From the report of <code>goqueue pipeline traces</code>. Times are as producer and workers saw them.</p>'
    headings = ("step", "times", "p50", "p95", "p99", "longest")
    return _section("Latencies in numbers", note + _table(headings, rows, numbers=(1, 2, 3, 4, 5)))


def _audit(outcome: Outcome) -> str:
    report = outcome.jobs.audit
    rows = [dict(zip(report.headings, row, strict=True)) for row in report.rows]
    shown = [
        (
            str(row["result"]),
            f"{row['topic']}/{row['partition']}",
            str(row["offset"]),
            str(row["path"] or ""),
            str(row["message"]),
        )
        for row in rows
        if row["offset"] is not None
    ]
    note = (
        '<p class="note">A few of the values that <code>goqueue pipeline audit</code> found. <i>breaks</i>: fits the schema, but would not fit '
        "the one that the shop thinks of next, with at most eight of a product.</p>"
    )
    headings = ("result", "partition", "offset", "path", "what is wrong")
    return _section("What the audit found", note + _table(headings, shown, numbers=(2,)))


def _steps(steps: Steps) -> str:
    rows = [
        (step.name, step.what, f"{step.begun_s:.1f} s", f"{step.ended_s - step.begun_s:.1f} s")
        for step in steps.done
    ]
    return _section("Where the time went", _table(("step", "what", "began at", "took"), rows, numbers=(2, 3)))


def _commands() -> str:
    commands = "\n".join(
        (
            "goqueue serve --http 127.0.0.1:0 --kafka 127.0.0.1:0    # free ports; then --bootstrap HOST:PORT below",
            "goqueue pipeline run orders.yaml --available-now        # without the option: until Ctrl-C",
            "goqueue pipeline archive orders orders.dlq --lake lake",
            "goqueue pipeline audit orders --schema order.json --new-schema order-v2.json",
            "goqueue pipeline traces traces/ --topics orders,orders.dlq",
        )
    )
    file = _text((SOURCES / PIPELINE).read_text())
    return _section(
        "The same as commands",
        f"<pre>{_text(commands)}</pre><details><summary>The pipeline, demo/{PIPELINE}</summary><pre>{file}</pre></details>",
    )


def _data(outcome: Outcome, known: Sequence[Hop], steps: Steps) -> str:
    """For programs. A `</` in it would end the element."""
    found = outcome.found
    value = {
        "orders": outcome.options.orders,
        "seed": outcome.options.seed,
        "is_right": outcome.is_right,
        "checks": [
            {
                "what": one.what,
                "expected": one.expected,
                "found": one.found,
                "origin": one.origin,
                "is_right": one.is_right,
            }
            for one in outcome.checks
        ],
        "revenue": [
            {"start_ms": start, "category": category, "cents": cents}
            for (start, category), cents in sorted(found.revenue_cents.items())
        ],
        "dead_letters": [
            {"reason": reason, "error": error, "count": count}
            for (reason, error), count in sorted(found.dead_letters.items())
        ],
        "throughput": rates(outcome.events, _EVENTS),
        "hops": known,
        "pipeline": outcome.jobs.pipeline.queries,
        "archive": outcome.jobs.archive.counts,
        "audit": outcome.jobs.audit.counts,
        "traces": outcome.jobs.traces.counts,
        "steps": steps.done,
    }
    text = msgspec.json.encode(value).decode().replace("</", "<\\/")
    return f'<script type="application/json" id="demo-data">{text}</script>'


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{content}\n</section>"


def _table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    verdict: int | None = None,
) -> str:
    def cell(tag: str, index: int, text: str) -> str:
        kind = "number" if index in numbers else ""
        if index == verdict and tag == "td":
            kind = "yes" if text == "right" else "no"
        attribute = f' class="{kind}"' if kind else ""
        return f"<{tag}{attribute}>{_text(text)}</{tag}>"

    def line(tag: str, row: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, index, text) for index, text in enumerate(row))}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table>\n<thead>{line("th", headings)}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _time(value_ms: float) -> str:
    return plots.duration(value_ms) if value_ms > 0 else "< 1 ms"


def _text(value: str) -> str:
    return html.escape(value, quote=False)
