"""Declarative pipelines: a file says what is read, how it is transformed and where it goes; Spark runs it."""
