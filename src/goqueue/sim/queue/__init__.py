"""Simulated members of queue groups."""
