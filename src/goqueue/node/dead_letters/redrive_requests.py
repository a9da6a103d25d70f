"""What the protocols need to name when they ask for a redrive."""

from goqueue.core.redrive import RedriveFilter

__all__ = ["RedriveFilter"]
