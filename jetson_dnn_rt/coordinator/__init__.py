"""Decides variants and clocks of all tasks together (NeuOS and its rivals)."""
