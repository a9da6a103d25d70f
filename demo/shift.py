"""The shop at work: one producer and a few workers, each in a thread, until every order is done with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from demo.diary import TOPIC, Diary
from demo.expected import RETRIES_MAX
from demo.failure import DemoFailed
from demo.orders import Shop
from demo.producer import publish_day
from demo.rest import ShopClient
from demo.workers import Tally, Worker

WORKER_COUNT: Final = 3
REVENUE: Final = "revenue"
UNREADABLE: Final = "orders.unreadable"
DEAD_LETTERS: Final = "orders.dlq"
PARTITIONS: Final = 3
_BACKOFF: Final = {"retry.backoff.ms": 250, "retry.backoff.max.ms": 1_000}


@dataclass(frozen=True, slots=True)
class Shift:
    diary: Diary
    tally: Tally
    work: list[Future[None]]

    def wait(self, timeout_s: float) -> None:
        """Until all is done; whatever went wrong is raised."""
        ended, going_on = wait(self.work, timeout_s, FIRST_EXCEPTION)
        for work in ended:
            work.result()
        if going_on:
            raise DemoFailed(f"after {timeout_s:.0f} s only {self.tally.finished} orders are done with")


@contextmanager
def working(shop: Shop, url: str, seconds: float) -> Iterator[Shift]:
    """They have begun when the block begins, and have stopped when it has ended."""
    diary, tally = Diary(), Tally(len(shop.orders))
    stop = threading.Event()
    with ExitStack() as open_clients:

        def client() -> ShopClient:
            return open_clients.enter_context(closing(ShopClient(url)))

        _create_topics(client())
        producer = client()
        workers = [
            Worker(f"worker-{number}", shop, client(), diary, tally) for number in range(1, WORKER_COUNT + 1)
        ]
        with ThreadPoolExecutor(1 + len(workers), thread_name_prefix="shop") as pool:
            work = [pool.submit(publish_day, shop, producer, diary, seconds, stop)]
            work += [pool.submit(worker.run, stop) for worker in workers]
            try:
                yield Shift(diary, tally, work)
            finally:
                stop.set()


def _create_topics(client: ShopClient) -> None:
    client.create_topic(TOPIC, PARTITIONS, {"max.retries": RETRIES_MAX, **_BACKOFF})
    client.create_topic(REVENUE, 1, {})
    client.create_topic(UNREADABLE, 1, {})
