"""Networks as graphs: tracing, folding, splitting into stages, mixed precision."""
