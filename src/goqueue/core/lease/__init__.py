"""Leases: who of a queue group holds which record of a partition, and what became of the rest."""
