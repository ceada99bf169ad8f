"""1 to 16 tasks."""
