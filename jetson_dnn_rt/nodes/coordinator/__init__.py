"""The coordinator node and the clock thread."""
