"""Builds and measures the variants of a task."""
