"""A blocking Kafka client for bulk work: batches in, batches out, never a record."""
