"""Command that watching adds to the package; see `jetson_dnn_rt.plugins`."""

COMMANDS = {"top": "jetson_dnn_rt.watch.top"}
