"""Why the demo cannot go on, as a sentence for whoever watches it."""

from __future__ import annotations


class DemoFailed(Exception):
    pass
