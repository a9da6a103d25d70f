"""kafka-python, imported past a deprecation of its own that our warning filter would make an error."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.errors
    import kafka.partitioner.default
    import kafka.record.default_records

# The library has no types.
codec: Any = kafka.codec
errors: Any = kafka.errors
partitioner: Any = kafka.partitioner.default
records: Any = kafka.record.default_records
