"""Measured tables of times, clocks and interference for the coordinator."""
