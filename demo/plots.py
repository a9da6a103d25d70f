"""The plots of the report, as SVG that stands inside the page."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from demo.expected import WINDOW_MS, Window
from demo.series import Hop, Rates

BLUE, ORANGE, GREEN, RED, INK, GREY = "#2f6fb0", "#e0803a", "#3f9a76", "#c0453f", "#20262e", "#8b93a0"
CATEGORY_COLOURS: Final = {"coffee": "#6b4a36", "tea": "#7fa650", "equipment": "#4f7cac", "sweets": "#d99a3d"}
_ID: Final = re.compile(r'(\bid="|href="#|url\(#)')  # where an id stands, or is referred to
_GRID: Final = "#e4e7ec"
_WIDE: Final = (9.6, 3.5)


def throughput(found: Rates) -> str:
    """Orders per second that came in, and that were done with."""
    with _styled():
        figure, axes = _figure(_WIDE)
        middles = [start + found.width_s / 2 for start in found.starts_s]
        stored, acked = found.by_name["publish.received"], found.by_name["consume.acked"]
        axes.fill_between(middles, stored, color=BLUE, alpha=0.15, linewidth=0)
        axes.plot(middles, stored, color=BLUE, linewidth=2, label="published")
        axes.plot(middles, acked, color=GREEN, linewidth=2, label="acknowledged by a worker")
        _per_second(axes, found)
        axes.legend(loc="upper left", ncols=2, bbox_to_anchor=(0, 1.12), borderaxespad=0)
        return _svg(figure, "throughput")


def latencies(found: Sequence[Hop]) -> str:
    """Percentiles of each step; steps too short for the clocks that measured them are left out."""
    shown = [hop for hop in found if hop.p50_ms > 0]
    with _styled():
        figure, axes = _figure((9.6, 0.9 + 0.42 * len(shown)))
        places = range(len(shown))
        for place, hop in zip(places, shown, strict=True):
            axes.plot([hop.p50_ms, hop.p99_ms], [place, place], color="#ccd2da", linewidth=3, zorder=1)
        for column, colour, label in (
            ("p50_ms", BLUE, "half are faster (p50)"),
            ("p95_ms", ORANGE, "95 % are faster (p95)"),
            ("p99_ms", RED, "99 % are faster (p99)"),
        ):
            axes.scatter(
                [getattr(hop, column) for hop in shown], places, s=46, color=colour, label=label, zorder=2
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.minorticks_off()
        axes.set_yticks(places, [hop.name for hop in shown])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.grid(axis="x", color=_GRID)
        axes.set_xlabel("time, on a logarithmic scale")
        axes.legend(loc="lower left", ncols=3, bbox_to_anchor=(0, 1.0), borderaxespad=0.3)
        return _svg(figure, "latencies")


def revenue(found: Mapping[Window, int], expected: Mapping[Window, int]) -> str:
    """Stacked by category; marks show what the generator says."""
    starts = sorted({start for start, _ in {**found, **expected}})
    with _styled():
        figure, axes = _figure(_WIDE)
        below = [0.0] * len(starts)
        for category, colour in CATEGORY_COLOURS.items():
            heights = [found.get((start, category), 0) / 100 for start in starts]
            axes.bar(range(len(starts)), heights, bottom=below, width=0.78, color=colour, label=category)
            below = [one + other for one, other in zip(below, heights, strict=True)]
        totals = [
            sum(cents for (start, _), cents in expected.items() if start == one) / 100 for one in starts
        ]
        axes.scatter(range(len(starts)), totals, marker="_", s=320, color=INK, label="as generated", zorder=3)
        every = max(1, len(starts) // 8)
        axes.set_xticks(range(0, len(starts), every), [_clock(start) for start in starts[::every]])
        axes.tick_params(axis="x", length=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y", color=_GRID)
        axes.set_xlabel(f"window of {WINDOW_MS // 60_000} minutes that begins at (UTC)")
        axes.set_ylabel("revenue, €")
        axes.legend(loc="upper left", ncols=5, bbox_to_anchor=(0, 1.14), borderaxespad=0, columnspacing=1.2)
        return _svg(figure, "revenue")


def retries(found: Rates, dead_letters: Counter[tuple[str, str]]) -> str:
    """Orders given back and dead letters over time; and why letters died."""
    with _styled():
        figure = Figure(figsize=_WIDE, layout="constrained")
        over_time, reasons = figure.subplots(1, 2, width_ratios=(1.7, 1))
        dead = found.by_name["dlq.routed"]
        back = [
            max(0.0, nacked + rejected - died)
            for nacked, rejected, died in zip(
                found.by_name["consume.nacked"], found.by_name["consume.rejected"], dead, strict=True
            )
        ]
        bars = {"width": found.width_s * 0.85, "align": "edge"}
        over_time.bar(found.starts_s, back, color=ORANGE, label="given back, to be tried again", **bars)
        over_time.bar(found.starts_s, dead, bottom=back, color=RED, label="dead letters", **bars)
        _per_second(over_time, found)
        over_time.legend(
            loc="upper left", ncols=2, bbox_to_anchor=(0, 1.12), borderaxespad=0, columnspacing=1.2
        )
        _reason_bars(reasons, dead_letters)
        return _svg(figure, "retries")


def duration(value_ms: float) -> str:
    """In the unit that people would use."""
    if value_ms < 1:
        return f"{value_ms * 1_000:,.3g} µs"
    return f"{value_ms:,.3g} ms" if value_ms < 1_000 else f"{value_ms / 1_000:,.3g} s"


def _reason_bars(axes: Axes, dead_letters: Counter[tuple[str, str]]) -> None:
    found = dead_letters.most_common()
    counts = [count for _, count in found]
    axes.barh(range(len(found)), counts, height=0.34, color=RED)
    for place, ((reason, error), count) in enumerate(found):
        axes.text(0, place - 0.24, f"{reason}: {error}", va="bottom", ha="left", fontsize=9.5)
        axes.text(count, place, f" {count:,}", va="center", ha="left", color=INK)
    axes.set_title("dead letters by reason", loc="left", fontsize=10.5)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.set_xlim(0, max(counts, default=1) * 1.25)
    axes.set_ylim(max(1.6, len(found) - 0.4), -0.7)
    axes.spines[["bottom", "left"]].set_visible(False)


def _per_second(axes: Axes, found: Rates) -> None:
    axes.set_xlabel("seconds since the first order")
    axes.set_ylabel("orders per second")
    axes.set_xlim(0, found.starts_s[-1] + found.width_s)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color=_GRID)


def _styled() -> AbstractContextManager[None]:
    return mpl.rc_context(
        {
            "font.family": "sans-serif",
            "font.size": 10.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": "#c3c9d2",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "xtick.color": "#59616c",
            "ytick.color": "#59616c",
            "legend.frameon": False,
        }
    )


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%H:%M")


def _svg(figure: Figure, name: str) -> str:
    """Without the XML around it. Ids begin with the name: several plots share one page."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()[text.getvalue().index("<svg") :]
    return _ID.sub(rf"\1{name}-", svg)
