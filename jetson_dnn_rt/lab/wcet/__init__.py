"""Extreme-value statistics of execution times."""
