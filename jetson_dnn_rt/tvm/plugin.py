# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entry points of the TVM plug-in; see `jetson_dnn_rt.plugins`."""

COMMANDS = {"export-c": "jetson_dnn_rt.tvm.export_c.command"}
BACKENDS = {"tvm": "jetson_dnn_rt.tvm.backend"}
