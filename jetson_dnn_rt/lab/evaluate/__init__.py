"""Replay of bags: no frame lost, in one process, at recorded times, simulated, or on a fleet."""
