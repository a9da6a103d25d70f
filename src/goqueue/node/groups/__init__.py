"""Groups: the coordinator of Kafka's groups, and members, offsets and views of groups for every protocol."""
