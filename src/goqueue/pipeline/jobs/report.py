"""What a job did, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Report:
    """Counts are totals of the run; rows are a small table (a line per topic, date, violation ...), never the data."""

    job: str
    counts: dict[str, int]
    headings: tuple[str, ...] = ()
    rows: list[tuple[object, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_failure: bool = False  # an audit that found violations, a backup that does not verify
