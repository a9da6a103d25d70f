"""Backups of a data folder: numbered, complete each, sharing what has not changed (docs/format/backup.md)."""
