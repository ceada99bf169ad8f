# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Libraries of the back ends, imported while a start waits for its cameras."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable

from jetson_dnn_rt.backends.registry import ON_ANY_CPU, is_installed
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.safety.faults import start_thread
from jetson_dnn_rt.variants.running.variant_set import choose_backend
from jetson_dnn_rt.variants.spec import VariantSpec

PROBE = "onnxruntime"
"""What runs ONNX files once to see their outputs."""


def list_libraries(tasks: Iterable[TaskConfig]) -> list[str]:
    """Libraries that tasks will import when they are loaded, of those that are installed.

    Those of TensorRT and of plug-ins are left to the tasks: they open devices.
    """
    wanted: list[str] = []
    for task in tasks:
        scheme = task.model.partition(":")[0]
        if scheme == "null":
            continue
        if scheme in ("builtin", "onnx"):
            wanted.append(PROBE)
        for name in task.variants:
            with contextlib.suppress(JetsonDnnRtError):  # the task says what is wrong with it
                wanted.append(VariantSpec.parse(name).backend)
        if not task.variants:
            wanted.append(choose_backend())
    return [name for name in dict.fromkeys(wanted) if name in ON_ANY_CPU and is_installed(name)]


def preload(tasks: Iterable[TaskConfig]) -> None:
    """Import the libraries of some tasks on a thread of its own; returns at once.

    A camera's process or device takes a while to come up, and libraries take as long to import.
    """
    names = list_libraries(tasks)

    def run() -> None:
        for name in names:
            # Whoever needs the library imports it again, and reports what is wrong with it.
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    start_thread(run, "preload")
