"""Execution times: what was seen, and what can be said about the worst."""
