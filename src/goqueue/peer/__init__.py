"""The other nodes of the cluster, as this one reaches them: signed HTTP for the control plane, Kafka frames for the data."""
