# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Command that watching adds to the package; see `jetson_dnn_rt.plugins`."""

COMMANDS = {"top": "jetson_dnn_rt.watch.top"}
