"""Looks at a running graph from outside, by its topics alone."""
