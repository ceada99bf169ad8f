"""The TVM plug-in: back end, tuning, export of C sources."""
