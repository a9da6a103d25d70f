"""Pure state machines: `decide` reads, `apply` alone mutates. No clock, no IO, no randomness."""
