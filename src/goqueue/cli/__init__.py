"""Commands; the composition root."""
