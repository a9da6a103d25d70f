"""The sink: rows into topics, exactly once unless asked for less."""
