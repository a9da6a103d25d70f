"""Raft messages that wait for one node: a bound, and heartbeats that replace each other."""

from __future__ import annotations

import asyncio

from goqueue.core.raft.messages import Append, AskVote, Entry, EntryKind, Message
from goqueue.peer.outbox import Outbox


def heartbeat(context: int, *, term: int = 1) -> Append:
    return Append("n1", "n2", term, 0, 0, (), 0, context)


def append(index: int) -> Append:
    entry = Entry(index, 1, EntryKind.COMMAND, b"x")
    return Append("n1", "n2", 1, index - 1, 1, (entry,), 0, 0)


def vote(term: int) -> AskVote:
    return AskVote("n1", "n2", term, 0, 0, is_pre=False, is_transfer=False)


async def emptied(outbox: Outbox) -> list[Message]:
    return [await outbox.take() for _ in range(len(outbox))]


def test_messages_come_out_in_order() -> None:
    async def main() -> None:
        outbox = Outbox()
        sent: list[Message] = [vote(1), append(1), append(2)]
        for message in sent:
            outbox.put(message)
        assert await emptied(outbox) == sent

    asyncio.run(main())


def test_heartbeat_replaces_the_one_that_waits_and_nothing_else() -> None:
    async def main() -> None:
        outbox = Outbox()
        for message in (heartbeat(1), append(1), heartbeat(2), vote(1), heartbeat(3)):
            outbox.put(message)
        assert await emptied(outbox) == [append(1), vote(1), heartbeat(3)]

    asyncio.run(main())


def test_heartbeat_of_an_older_term_replaces_none() -> None:
    async def main() -> None:
        outbox = Outbox()
        outbox.put(heartbeat(1, term=3))
        outbox.put(heartbeat(9, term=2))
        assert await emptied(outbox) == [heartbeat(1, term=3), heartbeat(9, term=2)]

    asyncio.run(main())


def test_oldest_go_first_when_there_are_too_many() -> None:
    async def main() -> None:
        outbox = Outbox(4)
        for term in range(1, 11):
            outbox.put(vote(term))
        assert await emptied(outbox) == [vote(term) for term in range(7, 11)]

    asyncio.run(main())


def test_taker_waits_for_a_message() -> None:
    async def main() -> None:
        outbox = Outbox()
        taking = asyncio.ensure_future(outbox.take())
        await asyncio.sleep(0)
        assert not taking.done()
        outbox.put(vote(1))
        assert await taking == vote(1)

    asyncio.run(main())
