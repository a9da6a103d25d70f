"""Routes that concern several nodes: the answers of all are merged, or none is given, for a part would look like the whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, structs

from goqueue.api.http.call import NoBody
from goqueue.api.http.errors import ENCODER
from goqueue.api.http.exchange import Refused, Request, asked_about, checked, unless_gone
from goqueue.api.http.merging import redriven
from goqueue.api.http.query import NoQuery, read_query
from goqueue.api.http.redrive import RedriveBody, Redriven
from goqueue.api.http.route import AnyRoute
from goqueue.api.http.where import Merge
from goqueue.model.errors import GoQueueError
from goqueue.node.forwarding import Elsewhere, Forwarding
from goqueue.node.spread.reading import PartitionsSeen

# What a route's endpoint answers, without sending it. Each route has types of its own.
Ask = Callable[[AnyRoute, Mapping[str, str], Any, Any], Awaitable[Any]]

PAGE_COUNT_MAX: Final = 1_000  # of every route that gives pages
PART_S_MAX: Final = 5.0


class Gathering:
    def __init__(self, forwarding: Forwarding, seen: PartitionsSeen, ask: Ask) -> None:
        self._forwarding = forwarding
        self._seen = seen
        self._ask = ask

    async def merged(self, request: Request, topic: str | None) -> Struct:
        """Of all leaders of a topic, or of all nodes."""
        route, merge = request.route, request.route.merge
        query = read_query(request.scope["query_string"], route.query)

        async def here(partitions: Sequence[int]) -> list[Any]:
            self._seen.check_leads(topic or "", partitions)
            return await _pages(query, merge, lambda part: self._ask(route, request.path, part, NoBody()))

        async def there(target: str, partitions: Sequence[int]) -> list[Any]:
            headers = asked_about(partitions)
            return await _pages(query, merge, lambda part: self._page(request, target, part, headers))

        answers = await self._forwarding.all_of(topic, here, there)
        items: list[Any] = []
        if merge.items:
            found = [one for pages in answers for page in pages for one in getattr(page, merge.items)]
            items = sorted(found, key=merge.key)[query.skip : query.skip + query.limit]
        joined: Struct = merge.join([pages[0] for pages in answers], items)
        return joined

    async def _page(self, request: Request, target: str, query: Struct, headers: Mapping[str, str]) -> Any:
        path: str = request.scope["raw_path"].decode("latin-1")
        texts = {name: value for name, value in structs.asdict(query).items() if value is not msgspec.UNSET}
        path += f"?{urlencode(texts)}" if texts else ""
        answer = await self._forwarding.forwarder.forward(
            target, "GET", path, headers, b"", timeout_s=PART_S_MAX
        )
        return msgspec.json.decode(checked(answer).body, type=request.route.answer)

    async def redriven(self, request: Request, topic: str, body: RedriveBody, *, timeout_s: float) -> Struct:
        """One leader after the other, each for what is still wanted. What some have done is told although others fail."""
        answers: list[Redriven] = []
        errors: list[str] = []
        left = body.limit
        for target in self._forwarding.parts_of(topic):
            part = structs.replace(body, limit=left)
            try:
                answers.append(await self._redrive_at(request, target, part, timeout_s))
            except (GoQueueError, Refused, Elsewhere) as error:
                if not answers:
                    raise
                errors.append(str(error) if isinstance(error, Elsewhere) else error.sentence)
                break
            left -= answers[-1].matched
            if left <= 0:
                break
        return redriven(answers, errors, dry_run=body.dry_run)

    async def _redrive_at(
        self, request: Request, target: str | None, body: RedriveBody, timeout_s: float
    ) -> Redriven:
        if target is None:
            found: Redriven = await self._ask(request.route, request.path, NoQuery(), body)
            return found
        asking = self._forwarding.forwarder.forward(
            target, "POST", request.target, request.headers, ENCODER.encode(body), timeout_s=timeout_s
        )
        answer = checked(await unless_gone(asking, request.receive))
        return msgspec.json.decode(answer.body, type=Redriven)


async def _pages(query: Any, merge: Merge[Any], get: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """As many as are needed to say what the page that was asked for holds."""
    found: list[Any] = []
    for part in _parts(query, merge):
        found.append(await get(part))
        if merge.items and len(getattr(found[-1], merge.items)) < part.limit:
            break
    return found


def _parts(query: Any, merge: Merge[Any]) -> Iterator[Any]:
    if not merge.items:
        yield query
        return
    wanted_count = query.skip + query.limit
    for skip in range(0, wanted_count, PAGE_COUNT_MAX):
        yield structs.replace(query, skip=skip, limit=min(PAGE_COUNT_MAX, wanted_count - skip))
