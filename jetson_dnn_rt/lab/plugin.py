# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Commands and variant makers that the desk adds to the package; see `jetson_dnn_rt.plugins`."""

COMMANDS = {
    "compress": "jetson_dnn_rt.lab.compress.command",
    "profile": "jetson_dnn_rt.lab.profile.command",
    "evaluate": "jetson_dnn_rt.lab.evaluate.command",
    "bag": "jetson_dnn_rt.lab.bag",
    "agree": "jetson_dnn_rt.lab.agree.command",
    "wcet": "jetson_dnn_rt.lab.wcet.command",
    "compare": "jetson_dnn_rt.lab.wcet.compare",
    "report": "jetson_dnn_rt.lab.report.command",
    "export": "jetson_dnn_rt.lab.report.export.command",
    "simulate": "jetson_dnn_rt.lab.simulate.command",
}
MAKERS = {
    "tucker": "jetson_dnn_rt.lab.compress.compression",
    "svd": "jetson_dnn_rt.lab.compress.compression",
    "int8": "jetson_dnn_rt.lab.quantize.quantization",
}
