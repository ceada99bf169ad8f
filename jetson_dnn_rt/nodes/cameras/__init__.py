"""Camera nodes."""
