"""The Kafka wire protocol: frames, messages, and one file per family of APIs. Translation and nothing else."""
