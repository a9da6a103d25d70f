"""Partitions on several nodes: leading, following, and staying in sync."""
