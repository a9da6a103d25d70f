"""Whole clusters in one process: nodes on hosts of their own, clients that follow metadata, faults, checkers, mutants."""
