"""What a task tells the driver, and what becomes of all of it together."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage

from goqueue.pipeline.sink.ports import Batch, Member


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The end of one task attempt. Without a member there is nothing to commit for it: it wrote no rows, or not in a
    transaction, or has committed already."""

    batch: Batch
    member: Member | None = None
    is_replay: bool = False  # the batch was committed before, and this attempt wrote nothing
    rows: Mapping[str, int] = field(default_factory=dict)  # by topic; dead letters are not among them
    bad_rows: Mapping[str, int] = field(default_factory=dict)  # by reason


@dataclass(frozen=True)
class Summary:
    """All tasks of a batch together."""

    batch: Batch
    rows: Mapping[str, int]
    bad_rows: Mapping[str, int]

    @classmethod
    def of(cls, batch: Batch, messages: Iterable[TaskWritten]) -> Summary:
        rows, bad_rows = Counter[str](), Counter[str]()
        for message in messages:
            rows.update(message.rows)
            bad_rows.update(message.bad_rows)
        return cls(batch, dict(sorted(rows.items())), dict(sorted(bad_rows.items())))

    def warning(self, what: str) -> str | None:
        """One line about rows that were not written, if there are any. `what` became of them."""
        if not self.bad_rows:
            return None
        counts = ", ".join(f"{reason}={count}" for reason, count in self.bad_rows.items())
        return (
            f"bad rows {what}: count={sum(self.bad_rows.values())} ({counts}) written={sum(self.rows.values())} "
            f"joint={self.batch.joint_id} batch={self.batch.batch_id}"
        )

    def save(self, path: Path) -> None:
        """In place of what the file had, whole or not at all."""
        content = {
            "joint_id": self.batch.joint_id,
            "batch_id": self.batch.batch_id,
            "rows": self.rows,
            "bad_rows": self.bad_rows,
        }
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content, indent=2) + "\n")
        draft.replace(path)


def those_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    """Without the tasks that have failed."""
    return [message for message in messages if isinstance(message, TaskWritten)]
