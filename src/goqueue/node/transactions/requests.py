"""What the protocols need to name when they ask for transactions."""

from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TransactionSaved, TxnState

__all__ = ["ProducerEpoch", "TopicPartition", "TransactionSaved", "TxnState"]
