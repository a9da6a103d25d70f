"""Nodes, replicas and leaders: the parts of the catalogue that a cluster needs."""
