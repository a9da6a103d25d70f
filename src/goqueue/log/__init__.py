"""Bytes on disk: batches, segments, indexes and partition logs behind the `Disk` port."""
