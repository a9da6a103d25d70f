"""What the other nodes of the cluster reach: one listener for signed HTTP and for Kafka frames."""
