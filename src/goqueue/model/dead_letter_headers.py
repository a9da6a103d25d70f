"""What a dead letter says of itself: the names of its headers, and of the topics it lies in.

The broker writes them, the pipeline reads them. One block of `gq-dlq-*` headers stands behind the record's own, `TOPIC` first;
only the last block counts.
"""

from __future__ import annotations

from typing import Final

SUFFIX: Final = ".dlq"  # of the topic that a topic's dead letters go to, unless set
REDRIVES_MAX: Final = 5  # of one message; then it stays where it is

PREFIX: Final = "gq-dlq-"
TOPIC: Final = "gq-dlq-topic"  # the first of a block
PARTITION: Final = "gq-dlq-partition"
OFFSET: Final = "gq-dlq-offset"
TIMESTAMP: Final = "gq-dlq-timestamp"
ATTEMPTS: Final = "gq-dlq-attempts"
FIRST_DELIVERY: Final = "gq-dlq-first-delivery"
LAST_DELIVERY: Final = "gq-dlq-last-delivery"
GROUP: Final = "gq-dlq-group"
CONSUMER: Final = "gq-dlq-consumer"
REASON: Final = "gq-dlq-reason"
ERROR: Final = "gq-dlq-error"
MISSING: Final = "gq-dlq-missing"  # only where the record could not be copied
REDRIVE_COUNT: Final = "gq-redrive-count"
