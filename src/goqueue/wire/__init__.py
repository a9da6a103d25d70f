"""Kafka's protocol as bytes: the layout of every message, and frames. Broker and clients share it."""
