"""What the TVM plug-in adds to the robot's package."""

COMMANDS = {"export-c": "jetson_dnn_rt.tvm.export_c.command"}
"""Commands of ``jetson-dnn-rt`` and their modules."""
