"""Benchmarks, a file or a folder each, run in a checkout by `python -m benchmarks NAME`."""
