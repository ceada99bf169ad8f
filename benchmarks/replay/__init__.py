"""Replay of a long bag through evaluate."""
