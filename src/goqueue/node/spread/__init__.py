"""Use cases that concern partitions of several nodes: each node does its part, and the client gets one answer."""
