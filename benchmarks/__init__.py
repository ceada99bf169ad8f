"""Benchmarks, one file each, run by `jetson-dnn-rt bench NAME`."""
