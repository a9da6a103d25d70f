"""The queue over the log: ledgers of who holds what, polls, acks, and Kafka's share groups."""
