"""Topics as tables and streams: what Spark reads, in which stretches, and when."""
