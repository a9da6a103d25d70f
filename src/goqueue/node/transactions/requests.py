"""What the protocols need to name when they ask for transactions."""

from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TransactionSaved, TxnState
from goqueue.core.txn.joint import AlreadyCommitted, Enrolled, Winner

__all__ = [
    "AlreadyCommitted",
    "Enrolled",
    "ProducerEpoch",
    "TopicPartition",
    "TransactionSaved",
    "TxnState",
    "Winner",
]
