"""What runs: sources, preprocessing, decoders, labels, built-in models."""
