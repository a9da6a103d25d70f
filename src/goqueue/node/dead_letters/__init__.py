"""Dead letters: where they go, how they are moved there exactly once, and how they come back."""
