"""Job traces and statistics computed while running."""
