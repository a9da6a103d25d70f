"""The quorum workload of the simulation: Raft alone, with disks and a network that are no more than what it needs."""
