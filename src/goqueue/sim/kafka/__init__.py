"""The Kafka workload of the simulation: producers, transactions and groups over the real listener."""
