"""Smaller networks: decomposition, ranks, recovery."""
