"""CUDA without a deep-learning library: driver, memory, streams, the input kernel."""
