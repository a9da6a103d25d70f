"""Replicas of a partition: how far each has come, who is in sync, and what is committed."""
