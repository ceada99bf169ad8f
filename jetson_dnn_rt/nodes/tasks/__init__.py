"""Task nodes: frames in, results out."""
