"""Starting Spark: which Java, which settings, which folders."""
