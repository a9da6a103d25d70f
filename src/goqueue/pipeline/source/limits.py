"""How much of what is waiting one micro-batch takes.

`maxOffsetsPerTrigger` is shared in proportion to what waits in each partition, and never exceeded. Each partition with something
waiting gets at least one; where there are more partitions than offsets to give, they take turns. Whose turn it is follows from how
far the stream has come, so nothing has to be remembered and a restart goes on where it was.

`maxBytesPerTrigger` needs the size of records, which no broker tells beforehand: the caller samples it.
"""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.pipeline.span import Place


def share_offsets(
    begins: Mapping[Place, int], ends: Mapping[Place, int], offsets_max: int
) -> dict[Place, int]:
    """New ends, together at most so many offsets after the beginnings."""
    waiting = {place: ends[place] - begins[place] for place in sorted(begins) if ends[place] > begins[place]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return dict(ends)
    given = dict.fromkeys(begins, 0)
    turns = _from_whose_turn_it_is(list(waiting), sum(begins.values()))
    if offsets_max <= len(turns):
        given.update(dict.fromkeys(turns[:offsets_max], 1))
    else:
        free = offsets_max - len(turns)
        for place, count in waiting.items():
            given[place] = 1 + (count - 1) * free // (total - len(turns))
        left = offsets_max - sum(given.values())
        for place in [place for place in turns if given[place] < waiting[place]][:left]:
            given[place] += 1
    return {place: begins[place] + given[place] for place in begins}


def share_bytes(
    begins: Mapping[Place, int],
    ends: Mapping[Place, int],
    record_bytes: Mapping[Place, float],
    bytes_max: int,
) -> dict[Place, int]:
    """New ends with about so many bytes before them, and at least one offset in each partition that has any."""
    total = sum((ends[place] - begins[place]) * record_bytes.get(place, 0.0) for place in begins)
    if total <= bytes_max:
        return dict(ends)
    part = bytes_max / total
    return {
        place: min(ends[place], begin + max(1, int((ends[place] - begin) * part)))
        if ends[place] > begin
        else begin
        for place, begin in begins.items()
    }


def waiting_count(begins: Mapping[Place, int], ends: Mapping[Place, int]) -> int:
    return sum(max(0, ends[place] - begin) for place, begin in begins.items())


def _from_whose_turn_it_is(places: list[Place], done: int) -> list[Place]:
    """Round and round: a stream that gives n turns moves on by n offsets, and so by n places."""
    first = done % len(places)
    return places[first:] + places[:first]
