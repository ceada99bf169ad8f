"""Diagnostics, timing topics, statistics and traces of running nodes."""
