"""A lake: topics as Parquet files by date, with a manifest that says which files count and how far they go."""
