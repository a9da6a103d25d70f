"""What a caller may be refused. The shell turns these into errors with a code."""

from __future__ import annotations


class NotLeading(Exception):
    """Ask another: `leader`, if it is known. Also while leadership is on its way to another."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(
            f"this node does not lead the quorum; {leader or 'nobody that it knows of'} does or will"
        )
        self.leader = leader


class Overloaded(Exception):
    """Too much is proposed and not yet committed."""

    def __init__(self, uncommitted_count: int) -> None:
        super().__init__(f"{uncommitted_count} proposals wait to be committed; try again later")
        self.uncommitted_count = uncommitted_count


class InvalidVoters(Exception):
    """The sentence says what is wrong with them."""
