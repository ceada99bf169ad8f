"""Times, agreement and memory of a variant."""
