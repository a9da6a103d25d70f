"""Transactions: who writes what together, and whether it counts."""
