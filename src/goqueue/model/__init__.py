"""Nouns: ids, records, topic settings, errors, limits. Imports nothing of ours."""
