"""A write from its first row to its commit: what a task does, and what the driver does when all of them have.

*exactly_once*: each task attempt that has a row enrols in the batch and writes in a transaction; the driver commits those
whose messages reached it, in one decision that also aborts all others. *per_task*: each task does both for itself. A batch
that was committed before is not written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.memory import keep_freed_memory
from goqueue.pipeline.sink.bad_rows import BadRowPolicy
from goqueue.pipeline.sink.identity import TaskIdentity
from goqueue.pipeline.sink.messages import Summary, TaskWritten
from goqueue.pipeline.sink.options import BadRows, Guarantee, SinkOptions
from goqueue.pipeline.sink.outlet import Outlet
from goqueue.pipeline.sink.ports import Batch, Cluster, Member
from goqueue.pipeline.sink.routing import Router
from goqueue.pipeline.sink.task_writer import TaskWriter
from goqueue.pipeline.sink.topic_facts import TopicFinder

Connect = Callable[[], Cluster]

_LOG: Final = logging.getLogger(__name__)


def write_task(
    connect: Connect,
    options: SinkOptions,
    names: Sequence[str],
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskWritten:
    """A task without rows asks nobody for anything."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskWritten(identity.whole)
    keep_freed_memory()
    cluster = connect()
    try:
        if not options.is_transactional:
            writer = _write(cluster, options, names, identity, None, chain([first], batches))
            return _written(identity, writer, None)
        own = identity.own if options.guarantee is Guarantee.PER_TASK else identity.whole
        member = cluster.enrol(own, identity.name, timeout_ms=options.timeout_ms)
        if member is None:
            return TaskWritten(identity.whole, is_replay=True)
        writer = _write_as(cluster, options, names, identity, own, member, chain([first], batches))
        if options.guarantee is Guarantee.PER_TASK:
            is_new = cluster.commit(own, [member])
            return _written(identity, writer, None) if is_new else TaskWritten(identity.whole, is_replay=True)
        return _written(identity, writer, member)
    finally:
        cluster.close()


def commit(
    connect: Connect,
    options: SinkOptions,
    whole: Batch,
    messages: Sequence[TaskWritten],
    *,
    is_stream: bool = False,
) -> None:
    """Any number of times, with the same result.

    A batch that nobody wrote to is committed, too: so attempts that were lost are aborted now and not when they time out.
    """
    winners = [message.member for message in messages if message.member is not None]
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        cluster = connect()
        try:
            is_new = cluster.commit(whole, winners)
            if not is_new and is_stream:
                _check_last(cluster, whole)
        finally:
            cluster.close()
        if not is_new and not winners:  # with winners it may be this very commit whose answer was lost
            if not is_stream:
                _LOG.warning(
                    "nothing written, committed before joint=%s batch=%s", whole.joint_id, whole.batch_id
                )
            return
    _report(options, Summary.of(whole, messages))


def abort(connect: Connect, options: SinkOptions, whole: Batch, *, is_final: bool = False) -> None:
    """Spark asks for it after a commit, too, if that raised: then it is too late, and nothing happens.

    A batch that nobody will write again (`is_final`) is committed with nothing of anybody: a task that Spark has lost sight of, and that enrols
    only now, is told so. After an abort it would be let in, and committed readers would wait until it times out.
    """
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    cluster = connect()
    try:
        if is_final:
            cluster.commit(whole, [])
        else:
            cluster.abort(whole)
    finally:
        cluster.close()


def _check_last(cluster: Cluster, whole: Batch) -> None:
    """Spark repeats the last batch of a checkpoint, and none before it. One that is repeated though later ones are committed
    comes of a checkpoint that was put back, or of a copy of it: it may have other rows than the one that counts."""
    if cluster.is_committed(Batch(whole.joint_id, whole.batch_id + 1)):
        raise PipelineError(
            f"micro-batch {whole.batch_id} of {whole.joint_id} was committed before, and later ones too: the checkpoint was "
            "put back to an earlier state, or is a copy that another query has gone on with. What it reads now would not be "
            "written; start with a new checkpointLocation, and startingOffsets behind what was written"
        )


def _write_as(
    cluster: Cluster,
    options: SinkOptions,
    names: Sequence[str],
    identity: TaskIdentity,
    own: Batch,
    member: Member,
    batches: Iterable[pa.RecordBatch],
) -> TaskWriter:
    """An attempt that fails gives up its part, so that nobody waits for it to time out."""
    try:
        return _write(cluster, options, names, identity, member, batches)
    except BaseException:
        try:
            cluster.give_up(own, identity.name)
        except PipelineError:
            pass  # then it times out, or the next commit aborts it; what went wrong first is what counts
        raise


def _write(
    cluster: Cluster,
    options: SinkOptions,
    names: Sequence[str],
    identity: TaskIdentity,
    member: Member | None,
    batches: Iterable[pa.RecordBatch],
) -> TaskWriter:
    finder = TopicFinder(cluster, options.makes_topics)
    if options.topic is not None and finder.find_all([options.topic]) == [None]:
        raise PipelineError(f"topic {options.topic!r} does not exist; create it, or set createTopics=true")
    sender = cluster.sender(member, options.acks)
    try:
        writer = TaskWriter(
            options,
            names,
            finder,
            Router(
                finder,
                options.topic,
                options.partition,
                options.batch_bytes,
                options.is_transactional,
                identity.first,
            ),
            BadRowPolicy(options, finder, identity.whole.joint_id),
            Outlet(sender, options.codec, options.is_transactional),
        )
        writer.write_all(batches)
    finally:
        sender.close()
    return writer


def _written(identity: TaskIdentity, writer: TaskWriter, member: Member | None) -> TaskWritten:
    return TaskWritten(identity.whole, member, rows=dict(writer.rows), bad_rows=dict(writer.policy.counts))


def _report(options: SinkOptions, summary: Summary) -> None:
    what = "left out" if options.bad_rows is BadRows.SKIP else "in dead letter topics"
    warning = summary.warning(what)
    if warning is not None:
        _LOG.warning(warning)
    if options.report_path is None:
        return
    try:
        summary.save(Path(options.report_path))
    except OSError as error:  # the rows are written: who is told of a failure would write them again
        _LOG.warning("no report reportPath=%s error=%s", options.report_path, error)
