"""Networks: their sources, inputs, heads and graphs."""
