"""What the TVM plug-in adds to the robot's package; see `jetson_dnn_rt.plugins`."""

COMMANDS = {"export-c": "jetson_dnn_rt.tvm.export_c.command"}
BACKENDS = {"tvm": "jetson_dnn_rt.tvm.backend"}
