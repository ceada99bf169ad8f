"""What all benchmarks share: options, machine, rounds in turn, tables, processes, tasks."""
