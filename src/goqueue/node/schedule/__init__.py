"""Delayed records: they wait in the companion log of their topic and are published when they are due."""
