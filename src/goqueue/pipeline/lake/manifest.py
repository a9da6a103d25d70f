"""Which files of a topic's table count, and up to which offsets they hold the topic.

A manifest is one JSON file with a number, never changed again; the one with the highest number counts. To commit is to create
the next one. It also says what is still to be done: which new files move from the staging folder to their place, and
which old ones go. Whoever opens the table first finishes that, so a crash at any moment leaves a table that is whole.

A run stages its files in a folder that has the number of the manifest that it began with. Once there is a later one it cannot
commit any more, so whoever commits removes what such runs have left.

A reader that only lists the folder sees no file of a task that failed and no staged one, since Spark passes over names that
begin with an underscore; while a commit is being carried out it may see some of its files and not yet others. One that asks
the manifest never does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.lake.store import Store

FOLDER = "_goqueue"
STAGING = "_staging"
KEPT_COUNT = 10  # older manifests that stay, to look at
FILE_COUNT_MAX = 1_000_000
_VERSION = 1


class LakeFile(Struct, frozen=True):
    """A Parquet file. Its rows are offsets of one or more partitions; the times are those of its records, in ms."""

    name: str  # from the table's folder on
    rows: int
    size: int
    first_offsets: dict[int, int]  # by partition
    last_offsets: dict[int, int]
    time_min_ms: int
    time_max_ms: int


class Gap(Struct, frozen=True):
    """Offsets that were gone when the archive came to them."""

    partition: int
    start: int
    end: int


class Manifest(Struct, frozen=True):
    topic: str
    number: int = 0
    version: int = _VERSION
    ends: dict[int, int] = {}  # partition to the offset that comes next
    files: tuple[LakeFile, ...] = ()
    gaps: tuple[Gap, ...] = ()
    run: str = ""  # whose staging folder the new files are in
    staged: dict[str, str] = {}  # name in that folder to the file's name
    removed: tuple[str, ...] = ()


class Table:
    """The table of one topic in a lake."""

    def __init__(self, lake: str, topic: str) -> None:
        if not lake:
            raise OptionError("a lake needs a folder or an object store; its name is empty")
        self.topic = topic
        self.store = Store(f"{lake.rstrip('/')}/{topic}")

    def url(self, name: str) -> str:
        """A file of the table as Spark is told of it."""
        if self.store.is_local:
            return f"file://{self.store.path(name)}"
        return f"{self.store.uri}/{name}"

    def open(self) -> Manifest:
        """The manifest in force, with everything done that it says. An empty one where there is none yet."""
        while True:
            number = self._newest()
            if number is None:
                return Manifest(self.topic)
            try:
                manifest = self._load(number)
                self._carry_out(manifest)
                return manifest
            except PipelineError:
                if self._newest() == number:  # else it was replaced meanwhile, and some of its files with it
                    raise

    def commit(self, before: Manifest, after: Manifest) -> Manifest:
        """The next manifest. An error if somebody else has committed one since `before`: then nothing has changed."""
        if len(after.files) > FILE_COUNT_MAX:
            raise PipelineError(
                f"the lake table {self.store.uri!r} would have {len(after.files)} files; the limit is {FILE_COUNT_MAX}"
            )
        after = msgspec.structs.replace(after, number=before.number + 1)
        try:
            self.store.create(_name(after.number), msgspec.json.format(msgspec.json.encode(after), indent=1))
        except FileExistsError:
            self.discard(after.run)
            raise self._overtaken() from None
        self._carry_out(after)
        self._sweep(after.number)
        return after

    def begin_run(self, before: Manifest) -> str:
        """The name of a run that is to commit the manifest after this one."""
        return f"{before.number}-{uuid.uuid4().hex[:12]}"

    @contextmanager
    def staging(self, run: str, before: Manifest) -> Iterator[None]:
        """While files of a run are staged. One that fails leaves none behind; if somebody else has committed since, that is
        why."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # what made the run fail is told, not this
                self.discard(run)
            if isinstance(error, Exception) and (self._newest() or 0) > before.number:
                raise self._overtaken() from error
            raise

    def discard(self, run: str) -> None:
        """What a run has staged and will not commit."""
        if run:
            self.store.remove_folder(f"{STAGING}/{run}")

    def _overtaken(self) -> PipelineError:
        return PipelineError(
            f"another archive of {self.topic!r} has committed to {self.store.uri!r} meanwhile; run again"
        )

    def _sweep(self, number: int) -> None:
        """What nobody needs any more, now that this manifest is in force and carried out."""
        old = [one for one in self._numbers() if one <= number - KEPT_COUNT]
        self.store.remove(_name(one) for one in old)
        for run in self.store.folders(STAGING):
            begun_at = run.partition("-")[0]
            if begun_at.isdecimal() and int(begun_at) < number:
                self.discard(run)

    def _carry_out(self, manifest: Manifest) -> None:
        """To do it again does no harm: a file that has been moved is where it belongs."""
        for staged, name in manifest.staged.items():
            self.store.move(f"{STAGING}/{manifest.run}/{staged}", name)
        self.store.sync_folders(manifest.staged.values())
        self.store.remove(manifest.removed)
        self.discard(manifest.run)

    def _load(self, number: int) -> Manifest:
        content = self.store.read(_name(number))
        where = self.store.path(_name(number))
        if content is None:
            raise PipelineError(f"{where} is gone; another archive seems to run at the same time")
        try:
            manifest = msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            raise PipelineError(f"{where} is no manifest of a lake table: {error}") from None
        if manifest.version != _VERSION:
            raise PipelineError(f"{where} has version {manifest.version}; this program reads {_VERSION}")
        if manifest.topic != self.topic:
            raise PipelineError(f"{where} is of topic {manifest.topic!r}, not of {self.topic!r}")
        return manifest

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _numbers(self) -> list[int]:
        names = self.store.names(FOLDER)
        return [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdigit()]


def _name(number: int) -> str:
    return f"{FOLDER}/{number:010d}.json"
