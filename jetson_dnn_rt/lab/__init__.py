"""The desk: compressing, profiling, evaluating, simulating, statistics and reports."""
