# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Loads an exported program, and runs it once, in a child process without rights.

See `jetson_dnn_rt.safety.sandbox`. Imports at the top are made before rights are dropped.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import torch
import torch._export.serde.serialize
import torch.export

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.exported import find_input_size, unlift

with contextlib.suppress(ImportError):  # torch 2.7 and older have another layout
    import torch.export.pt2_archive._package
with contextlib.suppress(ImportError):
    import torchvision  # noqa: F401  # registers its operators


def load_and_run(data: bytes) -> int:
    """Load a program as `jetson_dnn_rt.models.sources.exported` does, run it on an image.

    Excessive time or memory shows here, under the limits of a child. The
    result is the number of its nodes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(io.BytesIO(data))
        module = unlift(program)
        # One with other inputs is not run: the parent refuses it, with what it takes.
        with contextlib.suppress(ModelError):
            size = find_input_size(Path("program"), program)
            with torch.inference_mode():
                module(torch.zeros(1, 3, *size))
    return len(program.graph.nodes)
