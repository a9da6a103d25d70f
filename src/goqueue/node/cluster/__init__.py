"""The node as part of a cluster: the quorum of the metadata log, membership, and the control plane between nodes."""
