"""The command line, `jetson-dnn-rt`."""
