"""Loads an exported program in a child process that has no rights: `jetson_dnn_rt.sandbox`.

What is imported here is imported before rights are given up.
"""

from __future__ import annotations

import contextlib
import io
import warnings

import torch
import torch._export.serde.serialize
import torch.export

from jetson_dnn_rt.models.exported_source import unlift

with contextlib.suppress(ImportError):  # torch 2.7 and older have another layout
    import torch.export.pt2_archive._package
with contextlib.suppress(ImportError):
    import torchvision  # noqa: F401  # registers its operators


def load(data: bytes) -> int:
    """Load a program as `jetson_dnn_rt.models.exported_source` does; its number of nodes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(io.BytesIO(data))
        unlift(program)
    return len(program.graph.nodes)
