"""Partitions that come and go while every key keeps its order (ADR 35): what happens to records on their way in."""
