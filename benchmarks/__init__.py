"""Benchmarks, one file or folder each, run in a checkout by `python -m benchmarks NAME`."""
