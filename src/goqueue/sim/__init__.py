"""Deterministic simulation: event loop, network, disk, workloads and checkers from one seed."""
