# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Packages that no apt key brings: tests that need one that is missing are skipped by name."""

from __future__ import annotations

from importlib.util import find_spec

# Import names. Extras of setup.py, and what comes with a device.
OPTIONAL = {
    *(
        "dask",
        "distributed",
        "google",
        "mypyc",
        "nncf",
        "onnx",
        "onnx2torch",
        "onnxruntime",
        "onnxscript",
        "openvino",
    ),
    *("lz4", "markupsafe", "pyarrow", "pynvml"),
    *(
        "rosbags",
        "safetensors",
        "setuptools",
        "tensorrt",
        "torch",
        "torchvision",
        "trackforge",
        "tvm",
        "tvm_ffi",
        "xlsxwriter",
    ),
}
# Oracles and tools of the tests.
DEVELOPMENT = {"catkin_pkg", "packaging", "pandas", "pyextremes", "statsmodels", "xdist"}


def find_missing_package(error: BaseException | None) -> str | None:
    """Name the package whose absence is the cause of `error`, None if it has another cause."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            if package in OPTIONAL | DEVELOPMENT and find_spec(package) is None:
                return package
        error = error.__cause__ or error.__context__
    return None
