"""Batches of records to Arrow and back, a column at a time."""
