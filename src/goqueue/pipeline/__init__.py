"""The data pipeline: Spark jobs over topics. The broker never imports this folder; executors import little else."""
