"""Raft: how the nodes of a quorum agree on one log. Messages in, a `Ready` out; the caller does the IO."""
