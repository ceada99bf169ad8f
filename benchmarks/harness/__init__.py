"""Harness of all benchmarks: options, machine, rounds in turn, tables, processes, tasks."""
